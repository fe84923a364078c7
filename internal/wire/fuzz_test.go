package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These fuzz tests decode the bytes of a node twice: with the decoder of the package, and with a
// simple, slow decoder that has the whole text in memory. The two decoders must agree.

// A reference is the simple decoder. left is how many bytes the reply may still take in memory.
type reference struct {
	text []byte
	left int
}

var integer = regexp.MustCompile(`^-?[0-9]{1,19}$`)

// reply returns the next reply. Its error is errMalformed, or io.EOF if the text ends between
// replies, or io.ErrUnexpectedEOF if it ends within one.
func (r *reference) reply(depth int) (any, error) {
	line, err := r.line(depth == 0)
	if err != nil {
		return nil, err
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		return text, nil
	case '-':
		return refusal(text), nil
	case ',', '(':
		if text != "" {
			return text, nil
		}
		return nil, errMalformed
	}
	switch line {
	case "_":
		return nil, nil
	case "#t", "#f":
		return map[string]int64{"#t": 1, "#f": 0}[line], nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !integer.MatchString(text) {
		return nil, errMalformed
	}
	switch {
	case kind == ':':
		return n, nil
	case !strings.ContainsRune("$*=!~%|>", rune(kind)):
		return nil, errMalformed
	case n == -1 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$':
		return r.bulk(n)
	case kind == '=' || kind == '!':
		v, err := r.bulk(n)
		text, is := v.(string)
		switch {
		case !is:
			return nil, err
		case kind == '!':
			return refusal(Cut(text)), nil
		case len(text) < 4 || text[3] != ':':
			return nil, errMalformed
		}
		return text[4:], nil
	case n < 0 || n > maxReply/valueSize || depth == maxDepth || kind == '>' && depth > 0:
		return nil, errMalformed
	case kind == '%' || kind == '|':
		if n *= 2; n > maxReply/valueSize {
			return nil, errMalformed
		}
	}
	values := []any{}
	for range n {
		v, err := r.reply(depth + 1)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	switch kind {
	case '>':
		return push(values), nil
	case '|':
		if v, err := r.reply(depth); !errors.Is(err, io.EOF) {
			return v, err
		}
		return nil, io.ErrUnexpectedEOF
	}
	return values, nil
}

func (r *reference) line(first bool) (string, error) {
	line, rest, found := bytes.Cut(r.text, []byte("\n"))
	switch {
	case len(r.text) == 0 && first:
		return "", io.EOF
	case len(line) >= readBuffer:
		return "", errMalformed
	case !found:
		return "", io.ErrUnexpectedEOF
	}
	r.text = rest
	r.left -= valueSize + len(line) - 1
	if len(line) < 2 || line[len(line)-1] != '\r' || r.left < 0 {
		return "", errMalformed
	}
	return string(line[:len(line)-1]), nil
}

func (r *reference) bulk(n int64) (any, error) {
	if n < 0 || n > int64(r.left) {
		return nil, errMalformed
	}
	r.left -= int(n)
	if int64(len(r.text)) < n+2 {
		return nil, io.ErrUnexpectedEOF
	}
	text, end := string(r.text[:n]), string(r.text[n:n+2])
	r.text = r.text[n+2:]
	if end != crLF {
		return nil, errMalformed
	}
	return text, nil
}

// next returns the next reply of the text.
func (r *reference) next() (any, error) {
	r.left = maxReply
	return r.reply(0)
}

// chunks is a Reader that returns at most size bytes at a time.
type chunks struct {
	text []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size)], c.text)
	c.text = c.text[n:]
	return n, nil
}

// Whatever a node sends, and however small the pieces are, the decoder must return the same replies
// as the reference, up to the same error.
func FuzzReplies(f *testing.F) {
	all := ""
	for text := range replyTexts {
		if len(text) < 200 {
			f.Add([]byte(text), uint16(1))
			all += text
		}
	}
	f.Add([]byte(all), uint16(7))
	for _, text := range []string{
		"+a\r\n:1\r\nx\r\n", ":1\r\n$3\r\nab", "*2\r\n:1\r\n", "$16777199\r\nabc", "$16777200\r\nabc", "*1048577\r\n:1\r\n",
		":00000000000000000001\r\n", ":+1\r\n", ":1_0\r\n", "$-01\r\n", "+\n", "\r\n", "_\r\n", "*-2\r\n", "*1\r\n*-1\r\n",
		strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n", "+" + long[:readBuffer-3] + crLF, "+" + long[:readBuffer-2] + crLF, long[:readBuffer], long[:readBuffer-1],
		"$16382\r\n" + long[:16382] + crLF + "+OK\r\n", "$16383\r\n" + long[:16383] + "\rx",
	} {
		f.Add([]byte(text), uint16(0))
		f.Add([]byte(text), uint16(999))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint16) {
		want := &reference{text: text}
		got := bufio.NewReaderSize(&chunks{text, int(size) + 1}, readBuffer)
		for range len(text) + 1 { // each reply takes at least one byte
			wantValue, wantErr := want.next()
			value, err := readReply(got)
			require.Equal(t, wantErr, err)
			require.Equal(t, wantValue, value)
			if err != nil {
				return
			}
		}
		t.Error("the decoder returned more replies than the text has bytes")
	})
}

// usual returns what a node answers to a command.
func usual(cmd []any) string {
	switch cmd[0] {
	case "hello":
		return "-ERR unknown command 'HELLO'\r\n"
	case "info":
		return bulk("run_id:a\r\nuptime_in_seconds:5\r\n")
	case "ping":
		return "*2\r\n" + bulk("pong") + bulk("")
	case "script":
		return bulk(strings.Repeat("0", 40))
	case "echo":
		return bulk(cmd[1].(string))
	case "subscribe":
		return "*3\r\n" + bulk("subscribe") + bulk(cmd[1].(string)) + ":1\r\n"
	}
	return "+OK\r\n"
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// publishing returns a peer that answers SUBSCRIBE on its first connection with text, size bytes at a
// time, and then closes the connection. On later connections it confirms SUBSCRIBE and publishes
// "end".
func publishing(text []byte, size int) peer {
	return func(n int, k *talk) {
		for cmd := range k.all {
			switch {
			case cmd[0] == "subscribe" && n == 1:
				_, _ = io.CopyBuffer(struct{ io.Writer }{k}, &chunks{text, size}, make([]byte, size))
				time.Sleep(time.Second) // the client reads nothing more once this end of the pipe is closed
				return
			case cmd[0] == "subscribe":
				k.say("%s*3\r\n%s%s%s", usual(cmd), bulk("message"), bulk("channel"), bulk("end"))
			default:
				k.reply(cmd)
			}
		}
	}
}

// heardOf returns the calls that a text must cause at a Listener. all reports whether the text
// causes no other calls. After the first unexpected reply nothing more is certain, so all is false.
func heardOf(text []byte) (calls []string, all bool) {
	calls = []string{}
	r := &reference{text: text}
	for {
		v, err := r.next()
		words, _ := v.([]any)
		switch {
		case err != nil:
			return calls, len(r.text) == 0 && err == io.EOF //nolint:errorlint // as it comes
		case len(calls) == 0:
			if !reflect.DeepEqual(v, []any{"subscribe", "channel", int64(1)}) {
				return calls, false
			}
			calls = append(calls, "subscribed")
		case len(words) == 3 && words[0] == "message":
			_, isText := words[1].(string)
			payload, ok := words[2].(string)
			if !ok || !isText {
				return calls, false
			}
			calls = append(calls, "message "+payload)
		default:
			return calls, false
		}
	}
}

// grammar matches the calls that a Listener may get before Close, one letter for each.
var grammar = regexp.MustCompile(`^(U|S+M*U)*(R|S+M*)$`)

// Whatever a node sends to a subscriber, nothing may panic and the calls must follow the grammar. The
// Listener must get every message that the reference finds in the text. The subscription must continue
// on the next connection, unless the node refused it.
func FuzzSubscription(f *testing.F) {
	subscribed := usual([]any{"subscribe", "channel"})
	message := "*3\r\n" + bulk("message") + bulk("channel") + bulk("a\r\n\x00b")
	for _, text := range []string{
		"", subscribed, subscribed + message, subscribed + message + message + "+PONG\r\n" + message, subscribed + message[:20], message, "+OK\r\n",
		"-ERR no\r\n", "-NOPERM no\r\n", "-LOADING no\r\n", "-ERR max number of clients reached\r\n", "-\r\n", subscribed + "-ERR no\r\n" + message,
		subscribed + "x", subscribed + "*3\r\n+message\r\n:1\r\n:2\r\n", subscribed + "*1\r\n+message\r\n", subscribed + "*0\r\n", subscribed + "*-1\r\n", subscribed + "$-1\r\n",
		subscribed + "*3\r\n+message\r\n+channel\r\n$-1\r\n", subscribed + "*3\r\n+message\r\n+channel\r\n*1\r\n+a\r\n", subscribed + "*4\r\n+pmessage\r\n+c*\r\n+channel\r\n+a\r\n",
		subscribed + "*3\r\n+unsubscribe\r\n+channel\r\n:0\r\n", subscribed + "*3\r\n+subscribe\r\n$-1\r\n:0\r\n", "*3\r\n+subscribe\r\n+other\r\n:1\r\n", "*2\r\n+pong\r\n+\r\n", subscribed + "*2\r\n+pong\r\n+\r\n" + message,
		"!6\r\nERR no\r\n", ">3\r\n+subscribe\r\n+channel\r\n:1\r\n", "%1\r\n+a\r\n+b\r\n", subscribed + "*3\r\n*1\r\n+a\r\n+b\r\n+c\r\n", subscribed + "*3\r\n:1\r\n:1\r\n:1\r\n", subscribed + "*-2\r\n", subscribed + "$9999\r\n",
		subscribed + "$9223372036854775807\r\n", subscribed + "*2147483647\r\n:1\r\n", subscribed + strings.Repeat("*1\r\n", 5000), "*2147483647\r\n", "%9999999\r\n",
	} {
		f.Add([]byte(text), uint8(len(text)))
	}
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		want, all := heardOf(text)
		virtual(t, func(t *testing.T) {
			e, p := NewEar(t), publishing(text, int(size)+1).pool()
			s := listenTo(t, p, e)
			time.Sleep(20 * time.Second)
			s.Close()
			require.NoError(t, p.Close())
			letters, calls := "", []string{}
			for len(e.calls) > 0 {
				call := (<-e.calls).What
				letters, calls = letters+strings.ToUpper(call[:1]), append(calls, call)
			}
			require.Regexp(t, grammar, letters)
			require.Equal(t, want, calls[:min(len(want), len(calls))])
			if strings.HasSuffix(letters, "R") {
				require.Contains(t, "-!", string(text[:1]), "Refused was called, but the node began with no error reply of RESP2 or RESP3")
				return
			}
			if all {
				require.Equal(t, "unsubscribed", calls[len(want)])
			}
			require.Equal(t, []string{"subscribed", "message end"}, calls[len(calls)-2:])
		})
	})
}
