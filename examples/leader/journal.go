package main

import (
	"context"
	"fmt"
	"io"
	"net/rpc"
	"sync"
	"time"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/fencing"
)

// step is how long it takes to prepare an entry.
const step = 50 * time.Millisecond

// A Journal has the entries of all leaders. It runs in the first process, and candidates reach it through a loopback
// port. It refuses entries of an old term, unless it is unfenced.
type Journal struct {
	*rig.Timeline
	guard    fencing.Guard
	unfenced bool

	mu      sync.Mutex
	entries []Entry
	leaders []Entry // the first entry of each term
	refused []Entry
	held    string        // the candidate whose next entry must wait
	holding bool          // that entry is waiting
	goesOn  chan struct{} // closed when that entry may continue
}

// An Entry names the leader that wrote it, and the leader's term.
type Entry struct {
	Who  string
	Term uint64
}

func newJournal(unfenced bool, out io.Writer) *Journal {
	return &Journal{Timeline: rig.NewTimeline(out), unfenced: unfenced}
}

// Begin adds the first entry of a term.
func (j *Journal) Begin(e Entry, _ *Entry) error {
	return j.admit(e, func() {
		j.leaders = append(j.leaders, e)
		j.Say("%s leads: term %d", e.Who, e.Term)
	})
}

// Write adds an entry.
func (j *Journal) Write(e Entry, _ *Entry) error {
	return j.admit(e, func() {})
}

// admit adds an entry, unless it is of an old term.
func (j *Journal) admit(e Entry, do func()) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	add := func() error {
		j.entries = append(j.entries, e)
		do()
		return nil
	}
	if j.unfenced {
		return add()
	}
	err := j.guard.Do(e.Term, add)
	if err != nil {
		j.refused = append(j.refused, e)
		j.Say("%s writes with its old term: refused: %v", e.Who, err)
	}
	return err
}

// Prepare returns when an entry is ready to be written.
func (j *Journal) Prepare(e Entry, _ *Entry) error { //nolint:unparam // net/rpc asks for the error
	time.Sleep(step)
	j.mu.Lock()
	var goesOn chan struct{}
	if j.held == e.Who {
		j.holding, goesOn = true, j.goesOn
	}
	j.mu.Unlock()
	if goesOn != nil {
		<-goesOn
	}
	return nil
}

// hold makes the next entry of a candidate wait, until the returned function is called.
func (j *Journal) hold(who string) (goOn func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held, j.holding, j.goesOn = who, false, make(chan struct{})
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.held = ""
		close(j.goesOn)
	}
}

// await waits until something has happened. It asks with j.mu locked.
func (j *Journal) await(ctx context.Context, what string, happened func() bool) error {
	return rig.Await(ctx, &j.mu, what, happened)
}

// leader waits until the n-th leader has written its second entry, and returns the leader's name.
func (j *Journal) leader(ctx context.Context, n int) (who string, err error) {
	err = j.await(ctx, fmt.Sprintf("there is leader number %d", n), func() bool {
		count := 0
		for _, e := range j.entries {
			if len(j.leaders) == n && e == j.leaders[n-1] {
				count++
			}
		}
		return count > 1
	})
	if err != nil {
		return "", err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.leaders[n-1].Who, nil
}

// audit returns an error if an entry of an old term comes after one of a newer term.
func (j *Journal) audit() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lateLocked()
}

func (j *Journal) lateLocked() error {
	for i, e := range j.entries[1:] {
		if before := j.entries[i]; e.Term < before.Term {
			return fmt.Errorf("an entry of %s, term %d, stands behind one of %s, term %d", e.Who, e.Term, before.Who, before.Term)
		}
	}
	return nil
}

// A client is a candidate's connection to the journal.
type client struct{ *rpc.Client }

func (c *client) begin(who string, term uint64) error {
	return c.Call("Journal.Begin", Entry{who, term}, new(Entry))
}

func (c *client) prepare(who string) error {
	return c.Call("Journal.Prepare", Entry{Who: who}, new(Entry))
}

func (c *client) write(who string, term uint64) error {
	return c.Call("Journal.Write", Entry{who, term}, new(Entry))
}
