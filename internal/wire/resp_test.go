package wire

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// decode reads one reply, and returns it with its size in bytes.
func decode(r io.Reader) (value any, size int, err error) {
	counted := &counter{r: r}
	b := bufio.NewReaderSize(counted, readBuffer)
	value, err = readReply(b)
	return value, counted.n - b.Buffered(), err
}

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

var long = strings.Repeat("0123456789abcdef", readBuffer/8) // twice the buffer

var replyTexts = map[string]any{
	"+OK\r\n":                          "OK",
	"+\r\n":                            "",
	"+PONG\r\n":                        "PONG",
	"+a\rb\r\n":                        "a\rb",
	"-ERR no\r\n":                      refusal("ERR no"),
	"-\r\n":                            refusal(""),
	":0\r\n":                           int64(0),
	":-1\r\n":                          int64(-1),
	":0042\r\n":                        int64(42),
	":9223372036854775807\r\n":         int64(math.MaxInt64),
	":-9223372036854775808\r\n":        int64(math.MinInt64),
	"$-1\r\n":                          nil,
	"$0\r\n\r\n":                       "",
	"$5\r\na\r\nb\x00\r\n":             "a\r\nb\x00",
	"*-1\r\n":                          nil,
	"*0\r\n":                           []any{},
	"*1\r\n$-1\r\n":                    []any{nil},
	"*2\r\n*1\r\n:1\r\n*0\r\n":         []any{[]any{int64(1)}, []any{}},
	"*3\r\n+a\r\n-ERR b\r\n:3\r\n":     []any{"a", refusal("ERR b"), int64(3)},
	"$32768\r\n" + long + "\r\n":       long,
	"*1\r\n$32768\r\n" + long + crLF:   []any{long},
	"$16382\r\n" + long[:16382] + crLF: long[:16382], // the buffer, exactly
	"$16383\r\n" + long[:16383] + crLF: long[:16383],
	"+" + long[:readBuffer-3] + crLF:   long[:readBuffer-3],
	strings.Repeat("*1\r\n", maxDepth) + ":1\r\n": nest(maxDepth, int64(1)),

	"_\r\n":                                nil,
	"#t\r\n":                               int64(1),
	"#f\r\n":                               int64(0),
	",-1.5e3\r\n":                          "-1.5e3",
	",inf\r\n":                             "inf",
	"(123456789012345678901234567890\r\n":  "123456789012345678901234567890",
	"=7\r\ntxt:a\r\n\r\n":                  "a\r\n",
	"!5\r\nERR x\r\n":                      refusal("ERR x"),
	"~2\r\n:1\r\n_\r\n":                    []any{int64(1), nil},
	"%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n+c\r\n": []any{"a", int64(1), "b", []any{"c"}},
	"|1\r\n+ttl\r\n:5\r\n:7\r\n":           int64(7),
	"*1\r\n|0\r\n|1\r\n*0\r\n%0\r\n+a\r\n": []any{"a"},
	">3\r\n+MOVING\r\n:1\r\n_\r\n":         push{"MOVING", int64(1), nil},
	"|1\r\n+a\r\n+b\r\n>1\r\n+message\r\n": push{"message"},
}

const crLF = "\r\n"

func nest(depth int, v any) any {
	for range depth {
		v = []any{v}
	}
	return v
}

func TestReadReply(t *testing.T) {
	for text, want := range replyTexts {
		name := text[:min(len(text), 40)]
		for how, r := range map[string]io.Reader{
			"at once":        strings.NewReader(text),
			"byte by byte":   iotest.OneByteReader(strings.NewReader(text)),
			"with more":      strings.NewReader(text + "+next\r\n"),
			"end with bytes": iotest.DataErrReader(strings.NewReader(text)),
		} {
			v, n, err := decode(r)
			require.NoError(t, err, "%q %s", name, how)
			require.Equal(t, want, v, "%q %s", name, how)
			require.Equal(t, len(text), n, "%q %s", name, how)
		}
	}
}

func TestReadReplyMalformed(t *testing.T) {
	for _, text := range []string{
		"\r\n", "\n", "x\r\n", "OK\r\n", "+OK\n", "+a\nb\r\n", "\x00\r\n", "HTTP/1.1 400 Bad Request\r\n",
		":\r\n", ":-\r\n", ":+1\r\n", ":1 \r\n", ": 1\r\n", ":1.5\r\n", ":1e3\r\n", ":0x1\r\n", ":--1\r\n",
		":9223372036854775808\r\n", ":-9223372036854775809\r\n", ":18446744073709551617\r\n", ":99999999999999999999\r\n",
		"$\r\n", "$-2\r\n", "$x\r\n", "$1\r\nab\r\n", "$2\r\na\r\n\r\n", "$1\r\na\n\n", "$0\r\nxx",
		fmt.Sprintf("$%d\r\n", maxReply+1), "$9223372036854775807\r\n", "$-9223372036854775808\r\n",
		"$32768\r\n" + long + "xx",
		"*\r\n", "*-2\r\n", "*x\r\n", fmt.Sprintf("*%d\r\n", maxReply/valueSize+1), "*9223372036854775807\r\n", "*1\r\nx\r\n", "*2\r\n:1\r\n$-2\r\n",
		strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n",
		"+" + long, "-" + long + "\r\n", ":" + long, long,
		"_x\r\n", "#\r\n", "#x\r\n", ",\r\n", "(\r\n", "=3\r\ntxt\r\n", "=5\r\ntxtxa\r\n", "!-1\r\n", "~-1\r\n", "%-1\r\n", "*?\r\n",
		">-1\r\n", "*1\r\n>1\r\n+a\r\n", "|1\r\n+a\r\n>1\r\n", "%9223372036854775807\r\n", strings.Repeat("%1\r\n:1\r\n", maxDepth+1) + ":1\r\n",
	} {
		v, _, err := decode(strings.NewReader(text))
		require.Equal(t, errMalformed, err, "%q", text[:min(len(text), 40)])
		require.Nil(t, v)
	}
}

// The memory for a reply grows only with the bytes that have arrived, and has an upper limit.
func TestReadReplyHostile(t *testing.T) {
	endless := func(head, more string) io.Reader {
		return io.MultiReader(strings.NewReader(head), &repeating{text: more})
	}
	for name, c := range map[string]struct {
		r    io.Reader
		want error
		most uint64 // bytes allocated
	}{
		"long string that never comes": {strings.NewReader("$16000000\r\nabc"), io.ErrUnexpectedEOF, 1 << 20},
		"long array that never comes":  {strings.NewReader("*349525\r\n:1\r\n"), io.ErrUnexpectedEOF, 1 << 20},
		"deep arrays that never come":  {strings.NewReader(strings.Repeat("*349525\r\n", maxDepth)), io.ErrUnexpectedEOF, 1 << 20},
		"array without end":            {endless("*349525\r\n", "$-1\r\n"), errMalformed, 8 * maxReply},
		"arrays without end":           {endless("", "*1000000\r\n*0\r\n"), errMalformed, 1 << 20},
		"strings without end":          {endless("*349525\r\n", "$1000\r\n"+long[:1000]+crLF), errMalformed, 8 * maxReply},
		"longest string, twice":        {endless("*2\r\n", "$8388608\r\n"+strings.Repeat("x", 8<<20)+crLF), errMalformed, 8 * maxReply},
		"line without end":             {endless("+", "x"), errMalformed, 1 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := decode(c.r)
		runtime.ReadMemStats(&after)
		require.Equal(t, c.want, err, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, c.most, name)
	}
	largest := strings.Repeat("x", maxReply-2*valueSize)
	v, _, err := decode(strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", len(largest), largest)))
	require.NoError(t, err)
	require.True(t, v == largest)
}

// repeating is a Reader that returns the same text again and again.
type repeating struct {
	text string
	at   int
}

func (r *repeating) Read(p []byte) (n int, err error) {
	n = copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func TestReadReplyAllocatesLittle(t *testing.T) {
	for text, want := range map[string]float64{"+OK\r\n": 0, ":1\r\n": 0, ":0\r\n": 0, "$-1\r\n": 0, "*-1\r\n": 0, "$3\r\nabc\r\n": 2, "-ERR\r\n": 2} {
		in := strings.NewReader(text)
		r := bufio.NewReaderSize(in, readBuffer)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			in.Reset(text)
			r.Reset(in)
			if _, err := readReply(r); err != nil {
				t.Error(err)
			}
		}), want, "%q", text)
	}
}

func TestRefusalIsARedisError(t *testing.T) {
	var err error = refusal("NOSCRIPT No matching script.")
	var answer redis.Error
	require.ErrorAs(t, err, &answer)
	require.True(t, redis.HasErrorPrefix(err, "NOSCRIPT"))
	require.True(t, IsNoScript(err))
	require.False(t, IsNoScript(refusal("ERR NOSCRIPT")))
	require.EqualError(t, err, "NOSCRIPT No matching script.")
}

func TestAppendCommand(t *testing.T) {
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{"ping"}, "*1\r\n$4\r\nping\r\n"},
		{[]any{"set", "", "a\r\nb", "px", 8000}, "*5\r\n$3\r\nset\r\n$0\r\n\r\n$4\r\na\r\nb\r\n$2\r\npx\r\n$4\r\n8000\r\n"},
		{[]any{int64(math.MinInt64), -1}, "*2\r\n$20\r\n-9223372036854775808\r\n$2\r\n-1\r\n"},
	} {
		b, err := AppendCommand([]byte("before"), c.args)
		require.NoError(t, err)
		require.Equal(t, "before"+c.want, string(b))
	}
	for _, odd := range []any{nil, 1.5, true, time.Second, uint8(1), []byte("a"), []string{"a"}, struct{}{}, fmt.Errorf("a")} {
		b, err := AppendCommand([]byte("before"), []any{"set", "a", odd})
		require.ErrorContains(t, err, fmt.Sprintf("%T", odd))
		require.Equal(t, "before", string(b))
	}
}
