// Package ads tries the rules of an ADS stream on the real server over real
// gRPC. Each file under testdata is a transcript (package internal/xdstest) of
// one rule, and names the section of the xDS protocol specification that it
// comes from. Their expectations were written by hand from the specification
// and the design; an unchecked -rewrite would make them worthless.
package ads
