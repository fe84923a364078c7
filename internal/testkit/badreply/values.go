package badreply

import "math"

// A Value describes a reply as a pool delivers it, and the request that it answers. It consists of
// numbers and a text, so that fuzzing can vary it.
type Value struct {
	Shape   uint8
	N, Done int64
	Text    string
	How     uint8 // describes the request; each test gives it a meaning
}

// shapes is how many kinds of replies there are.
const shapes = 16

// Reply returns the reply. It may have any type that a pool delivers, or another type.
func (v Value) Reply() any {
	return [shapes]any{
		nil, v.N, v.Text,
		[]any{v.N, v.Text, v.Done},
		"OK",
		[]any{},
		[]any{v.N},
		[]any{v.Text, v.Text, v.Done},
		[]any{v.N, v.Text, nil},
		[]any{v.N, v.Text, v.Done, v.Done},
		true, float64(v.N), []byte(v.Text), int(v.N),
		[]string{v.Text},
		struct{}{},
	}[v.Shape%shapes]
}

// IsNumber reports whether the reply is the number N.
func (v Value) IsNumber() bool { return v.Shape%shapes == 1 }

// IsTriple reports whether the reply is N, Text and Done.
func (v Value) IsTriple() bool { return v.Shape%shapes == 3 }

// Values returns the seeds for fuzzing.
func Values() (values []Value) {
	for shape := range uint8(shapes) {
		for _, n := range []int64{0, 1, 2, 3, 5, 9, 25, 29, 32, 33, -1, -27, 1 << 32, math.MinInt64, math.MinInt64 + 1} {
			values = append(values, Value{shape, n, n & 3, "7", shape})
		}
	}
	return append(values,
		Value{2, 0, 0, "QUEUED", 0},
		Value{2, 0, 0, "PONG", 3},
		Value{3, 0, 1, "18446744073709551616", 1},
		Value{3, 0, 3, "18446744073709551615", 5},
		Value{3, 0, 2, "9", 1},
		Value{3, 0, 1, "9", 1},
		Value{3, 0, 3, "9", 1},
		Value{3, 0, 3, "9", 5},
		Value{3, 0, 2, "9", 2},
		Value{3, 0, 0, "9", 7},
	)
}
