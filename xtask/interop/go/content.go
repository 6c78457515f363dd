package main

import (
	"fmt"
	"strconv"
)

// A prime, so that a body shifted by a power of two shows.
const period = 251

// content is what message number index looks like, so that a receiver can
// rebuild it from its number.
type content struct {
	body       []byte
	tag        string
	keys       []string
	properties map[string]string
}

func contentOf(index, count, bodyMax int) content {
	body := make([]byte, sizeOf(index, count, bodyMax))
	for position := range body {
		body[position] = byte(index + 7*(position%period))
	}
	return content{
		body: body,
		tag:  fmt.Sprintf("tag-%d", index%7),
		keys: []string{fmt.Sprintf("key-%d", index), fmt.Sprintf("shared-%d", index%10)},
		properties: map[string]string{
			"index":   strconv.Itoa(index),
			"text":    fmt.Sprintf("größe-%d-完了", index),
			"symbols": fmt.Sprintf(`a=b&c;d|e%%41 "%d" 'x'`, index),
		},
	}
}

func sizeOf(index, count, bodyMax int) int {
	switch {
	case index == count/5, index == 2*count/5+1, index == 3*count/5, index == 4*count/5+1:
		return bodyMax
	case index%50 == 7:
		return min(bodyMax, 1024<<(index/50%8))
	default:
		return min(bodyMax, 1+index*37%1024)
	}
}
