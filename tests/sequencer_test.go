package redsync_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

// This file tests Sequencers: their text, and what the nodes say about them.

func TestParseSequencerOfOtherTexts(t *testing.T) {
	for want, texts := range map[string]string{
		"redsync1.name.token.value": ",lock,redsync1,redsync1.names-1-1.YSwgYg.7.dg,redsync3.names-1-1.YSwgYg.7.dg,REDSYNC1.bG9jaw.7.dg, redsync1.bG9jaw.7.dg," +
			"redsync1.bG9jaw.7,redsync1.bG9jaw.7.dg.dg,redsync1.bG9jaw.7.dg.",
		"redsync2.mode.name.token.value": "redsync2.bG9jaw.7.dg",
		"does not know the mode": "redsync2.shared.bG9jaw.7.dg,redsync2..bG9jaw.7.dg,redsync2.names.bG9jaw.7.dg,redsync2.names-4.bG9jaw.7.dg," +
			"redsync2.names-1-x.YSwgYg.7.dg,redsync2.names-1-.YSwgYg.7.dg,redsync2.names-1--1.YSwgYg.7.dg,redsync2.names-1-+1.YSwgYg.7.dg," +
			"redsync2.names-1-01.YSwgYg.7.dg,redsync2.names-1-9223372036854775808.YSwgYg.7.dg,redsync2.NAMES-1-1.YSwgYg.7.dg",
		"its name": "redsync2.names-1-1.YSwgYg==.7.dg,redsync1.b!.7.dg,redsync1.bG9jaw==.7.dg,redsync1.b.7.dg,redsync1.+/+/.7.dg",
		"its token": "redsync2.names-1-1.YSwgYg..dg,redsync1.bG9jaw..dg,redsync1.bG9jaw.-7.dg,redsync1.bG9jaw.+7.dg,redsync1.bG9jaw.x.dg," +
			"redsync1.bG9jaw.0x7.dg,redsync1.bG9jaw.18446744073709551616.dg",
		"its value":               "redsync2.names-1-1.YSwgYg.7.d,redsync1.bG9jaw.7.?,redsync1.bG9jaw.7.dg==,redsync1.bG9jaw.7.d,redsync1.bG9jaw.7.dg ",
		"not as String writes it": "redsync2.names-1-1.YSwgYg.07.dg",
		"":                        permitTexts("3-3 3 0-0 257-0 3--1 3-00 3-2-0 3-1-1 x-0 3-0- +3-0 3-+0 -3-0"),
	} {
		for text := range strings.SplitSeq(texts, ",") {
			got, err := redsync.ParseSequencer(text)
			require.ErrorContains(t, err, "redsync: no sequencer: ", text)
			require.ErrorContains(t, err, want, text)
			assert.Zero(t, got)
		}
	}
	for text := range strings.SplitSeq(permitTexts("3-0 3-2 3-0-2 256-255"), ",") {
		_, err := redsync.ParseSequencer(text)
		require.NoError(t, err, text)
	}
}

// permitTexts returns texts of permits in these modes.
func permitTexts(modes string) string {
	return "redsync2.permits-" + strings.ReplaceAll(modes, " ", ".bG9jaw.0.dg,redsync2.permits-") + ".bG9jaw.0.dg"
}

// encodings are the ways in which a Sequencer is written and read.
var encodings = map[string]struct {
	write func(v any) ([]byte, error)
	read  func(data []byte, v any) error
}{
	"json": {json.Marshal, json.Unmarshal},
	"gob": {func(v any) ([]byte, error) {
		var b bytes.Buffer
		err := gob.NewEncoder(&b).Encode(v)
		return b.Bytes(), err
	}, func(data []byte, v any) error { return gob.NewDecoder(bytes.NewReader(data)).Decode(v) }},
}

func TestSequencerIsEncoded(t *testing.T) {
	type message struct {
		By   redsync.Sequencer
		To   *redsync.Sequencer
		Uses map[redsync.Sequencer]int
	}
	for name, s := range map[string]redsync.Sequencer{
		"plain":         {Name: "lock", Token: 9007199254740993, Value: "v"},
		"several names": sequencerOfNames([]string{"a", "b"}, 7, "v"),
		"zero":          {},
	} {
		for by, encoding := range encodings {
			t.Run(name+" by "+by, func(t *testing.T) {
				want := message{By: s, To: &s, Uses: map[redsync.Sequencer]int{s: 1}}
				var got message
				noError(t, encoding.read(must(encoding.write(want)), &got))
				assert.Equal(t, want, got)
			})
		}
		assert.Equal(t, `"`+s.String()+`"`, string(must(json.Marshal(s))))
	}
}

func TestSequencerIsNotDecodedFromOtherTexts(t *testing.T) {
	for _, text := range []string{`"redsync1.bG9jaw.x.dg"`, `""`, `{"Name":"lock","Token":7,"Value":"v"}`, `7`} {
		want := redsync.Sequencer{Name: "before", Token: 1, Value: "v"}
		s := want
		require.Error(t, json.Unmarshal([]byte(text), &s), text)
		assert.Equal(t, want, s) // an Unmarshal that fails leaves the Sequencer as it was
	}
}

func FuzzParseSequencer(f *testing.F) {
	for _, text := range []string{
		"", "redsync1.bG9jaw.7.dg", "redsync1..0.", "redsync1.bG9jaw.x.dg", "redsync1.b\ng.7.dg",
		"redsync2.names-1-1.YSwgYg.7.dg", "redsync2.names-1-01.YSwgYg.7.dg", "redsync2.names-9-9.YSwgYg.7.dg", "redsync2.shared.YQ.7.dg",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := redsync.ParseSequencer(text)
		if err != nil {
			assert.Zero(t, s)
			return
		}
		assert.Equal(t, text, s.String())
		if names := s.Names(); len(names) > 0 {
			assert.Equal(t, s.Name, strings.Join(names, ", "))
		}
	})
}

func TestSequencerIsOfTheCurrentHold(t *testing.T) {
	onKit(t, func(k kit) {
		m := k.another(withFencing).NewMutex("lock")
		assert.Zero(t, m.Sequencer()) // idle
		locked(t, m)
		want := redsync.Sequencer{Name: "lock", Token: m.Fence(), Value: m.Value()}
		assert.Equal(t, want, m.Sequencer())
		assert.Zero(t, k.NewMutex("lock", withValue(m.Value())).Sequencer()) // a Mutex that has adopted but not extended has no Sequencer
		time.Sleep(validity - 1)
		assert.Equal(t, want, m.Sequencer()) // the Sequencer is there until the hold ends
		time.Sleep(time.Nanosecond)
		assert.Zero(t, m.Sequencer()) // over
		locked(t, m)
		k.unlock(m)
		assert.Zero(t, m.Sequencer()) // unlocked
	})
}

func TestCurrentWhileHeld(t *testing.T) {
	parallelComputing(t)
	testlength.NotShort(t)
	for name, fault := range map[string]func(k kit){
		"two are down":   func(k kit) { k.down(0, 1) },
		"two are frozen": func(k kit) { k.freeze(2, 4) },
		"two forgot it":  func(k kit) { k.lose(0, 1) },
		"extended":       func(kit) { time.Sleep(minute) },
	} {
		for _, options := range []opts{{withWatchdog}, {withWatchdog, withFencing}} {
			kitAs(t, name, func(k kit) {
				server := k.another()
				m := k.held(options...)
				s := must(redsync.ParseSequencer(m.Sequencer().String()))
				fault(k)
				noError(k, k.current(server, s))
				assert.Positive(k, m.Remaining()) // Current does not end the hold
				k.thaw(2, 4)
				_, _ = m.Unlock()
			})
		}
	}
}

// Without a quorum, Current does not say that a hold goes on or that it is over.
func TestCurrentWhereTooFewTell(t *testing.T) {
	for name, fault := range map[string]func(f field){
		"down":                           hit(field.kill, majority...),
		"frozen":                         hit(field.freeze, majority...),
		"two failing, one has forgotten": func(f field) { f.refuse(0, 1); f.lose(2) },
	} {
		playAs(t, name, func(f field) {
			server := f.another()
			s := f.held(withFencing).Sequencer()
			fault(f)
			start := time.Now()
			err := f.current(server, s)
			for _, not := range []error{redsync.ErrLockAlreadyExpired, redsync.ErrNotHeld} {
				require.NotErrorIs(f, err, not)
			}
			require.ErrorAs(f, err, new(*redsync.RedisError))
			assert.LessOrEqual(f, time.Since(start), patience)
			assert.NotContains(f, err.Error(), "still held")
			if name != "two failing, one has forgotten" {
				errorIs(f, err, redsync.ErrNoQuorum)
				says(f, err, `redsync: current "lock": 3 of 5 nodes failed, 3 needed`)
			}
			f.thaw(majority...)
		})
	}
}

func TestCurrentOfNoHold(t *testing.T) {
	play(t, func(f field) {
		before := f.traffic()
		for _, s := range []redsync.Sequencer{{}, {Name: "lock", Token: 7}, {Value: "v", Token: 7}} {
			errorIs(t, f.current(f.Redsync, s), redsync.ErrNotHeld)
		}
		erred(t, f.current(f.Redsync, redsync.Sequencer{Name: "{lock}:fence", Value: "v"})) // Current refuses a reserved name
		f.hasSent(before)

		ctx, cancel := context.WithCancel(f.Context())
		cancel()
		onEach(f.nodes, "evalsha", 9, embedded.Fault{Delay: sec})
		errorIs(t, f.Current(ctx, redsync.Sequencer{Name: "lock", Value: "v"}), context.Canceled)
		noError(t, f.Close(f.Context()))
		errorIs(t, f.current(f.Redsync, redsync.Sequencer{Name: "lock", Value: "v"}), redsync.ErrClosed)
	})
}
