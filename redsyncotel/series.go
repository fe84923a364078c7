package redsyncotel

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed14bd9ef4/redsync/observe"
)

// The keys of attributes. The semantic conventions have error.type; the others are of this package.
const (
	keyErrorType = attribute.Key("error.type")
	keyMode      = attribute.Key("redsync.mode")
	keyOutcome   = attribute.Key("redsync.outcome")
	keyOp        = attribute.Key("redsync.op")
	keyNode      = attribute.Key("redsync.node")
	keyName      = attribute.Key("redsync.name")
)

// A point says to which series a measurement belongs. "" stands for an attribute that the series does not have.
type point struct {
	mode      observe.Mode
	outcome   string
	errorType string
	op        string
	node      int // plus 1; 0 for none
}

// attributes returns those of p, with the name of a lock if there is one.
func (p point) attributes(name string) []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 6)
	for _, text := range []attribute.KeyValue{
		keyMode.String(string(p.mode)), keyOutcome.String(p.outcome), keyErrorType.String(p.errorType), keyOp.String(p.op),
		keyName.String(name),
	} {
		if text.Value.AsString() != "" {
			all = append(all, text)
		}
	}
	if p.node != 0 {
		all = append(all, keyNode.Int(p.node-1))
	}
	return all
}

// options are the attributes of a series, in the two forms that instruments take.
type options struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

// A table keeps the attributes of series, so that recording makes none. It belongs to one name of locks, or to none.
// Readers of nodes use it: a look at it waits for nobody, and only the first measurement of a series waits for others
// that add one.
type table struct {
	name string
	made atomic.Pointer[map[point]*options] // a map is never changed, but replaced
	mu   sync.Mutex                         // held to replace it
}

func newTable(name string) *table {
	t := &table{name: name}
	t.made.Store(&map[point]*options{})
	return t
}

// options returns the attributes of p.
func (t *table) options(p point) *options {
	if o := (*t.made.Load())[p]; o != nil {
		return o
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	made := *t.made.Load()
	if o := made[p]; o != nil {
		return o
	}
	with := metric.WithAttributeSet(attribute.NewSet(p.attributes(t.name)...))
	o := &options{record: []metric.RecordOption{with}, add: []metric.AddOption{with}}
	more := maps.Clone(made)
	more[p] = o
	t.made.Store(&more)
	return o
}

// maxTables is for how many names tables are kept. A program should have far fewer.
const maxTables = 1024

// tables has a table for each name that the user's function returns.
type tables struct {
	nameless *table
	rename   func(string) string // the user's, or nil

	mu    sync.RWMutex
	named map[string]*table
}

// of returns the table of a lock.
func (t *tables) of(lock string) *table {
	if t.rename == nil {
		return t.nameless
	}
	name := renamed(t.rename, lock)
	if name == "" {
		return t.nameless
	}
	t.mu.RLock()
	known := t.named[name]
	t.mu.RUnlock()
	if known != nil {
		return known
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known = t.named[name]; known != nil {
		return known
	}
	made := newTable(name)
	if len(t.named) < maxTables {
		t.named[name] = made
	}
	return made
}

// renamed returns what the user's function makes of the name of a lock, "" if it panics.
func renamed(rename func(string) string, lock string) (name string) {
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	return rename(lock)
}
