package http2

import "sync"

const chunkSize = 16 << 10

// chunk is memory of a queue, from a pool.
type chunk [chunkSize]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// queue is data that waits for leave to be sent. Flow control bounds it.
type queue struct {
	chunks []*chunk
	// from is where the data begins in the first chunk, to where it ends in the last.
	from, to int
	size     int
}

// push copies p to the end.
func (q *queue) push(p []byte) {
	q.size += len(p)
	for len(p) > 0 {
		if len(q.chunks) == 0 || q.to == chunkSize {
			q.chunks = append(q.chunks, chunks.Get().(*chunk))
			q.to = 0
		}
		n := copy(q.chunks[len(q.chunks)-1][q.to:], p)
		q.to += n
		p = p[n:]
	}
}

// peek gives the first bytes, up to n of them; they are in the queue until skip.
func (q *queue) peek(n int) []byte {
	end := chunkSize
	if len(q.chunks) == 1 {
		end = q.to
	}
	return q.chunks[0][q.from:min(end, q.from+n)]
}

// skip drops the first n bytes.
func (q *queue) skip(n int) {
	q.size -= n
	q.from += n
	if q.size == 0 {
		q.drop()
		return
	}
	if q.from == chunkSize {
		chunks.Put(q.chunks[0])
		q.chunks[0] = nil
		q.chunks = q.chunks[1:]
		q.from = 0
	}
}

func (q *queue) drop() {
	for _, c := range q.chunks {
		if c != nil {
			chunks.Put(c)
		}
	}
	*q = queue{}
}
