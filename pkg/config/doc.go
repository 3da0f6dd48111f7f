// Package config fills one struct per program from its command line, its
// environment, a YAML file and the defaults, in this order of precedence, and
// says of every wrong value where it came from.
//
// Each setting is one row of a table (server.go, dataplane.go) and has one
// name in three spellings: the flag --xds-address, the environment variable
// FRESHMESH_XDS_ADDRESS and the YAML key xds.address (the first dash of the flag becomes
// a dot; the nested form and the dotted key are the same to the reader). A
// value from a stronger origin replaces the weaker one whole, lists too; a
// wrong value is an error even where a stronger origin overrides it. An empty
// environment variable counts as not set.
//
// The package is called once, at the start of a program, from one goroutine.
// The structs it returns are plain values.
package config
