package main

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// load returns a function for Read that stores the state of id in *state.
func (d *database) load(state *string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		return tx.QueryRowContext(d.ctx, d.query(selectState), d.id).Scan(state)
	}
}

// look reads with a token, whatever it finds.
func (d *database) look(token uint64) error {
	return d.read(token, d.load(new(string)))
}

// requireRead requires that a read with token finds the state.
func (d *database) requireRead(token uint64, state string) {
	found := ""
	require.NoError(d.to, d.read(token, d.load(&found)))
	require.Equal(d.to, state, found)
}

// requireUnread requires that a read with token is refused because a write had the token newest.
func (d *database) requireUnread(token, newest uint64) {
	err := d.read(token, func(*sql.Tx) error {
		return errors.New("called")
	})
	requireStale(d.to, err, token, newest)
}

func TestSQLFailedReadCountsAsSeen(t *testing.T) {
	onDatabases(t, func(d *database) {
		require.ErrorIs(d, d.read(2, func(*sql.Tx) error { return errWrite }), errWrite)
		requireStale(d, d.write(1, "late"), 1, 2)
		require.Panics(d, func() { d.read(4, func(*sql.Tx) error { panic("read") }) })
		requireStale(d, d.write(3, "late"), 3, 4)
	})
}

// A newer holder writes while a transaction reads. The writer must not wait for the reader, and the
// reader must see nothing of the write.
func TestSQLReadIsOfOneTime(t *testing.T) {
	onDatabases(t, func(d *database) {
		require.NoError(d, d.read(1, func(tx *sql.Tx) error {
			require.NoError(d, d.write(2, "newer"))
			var state string
			require.NoError(d, d.load(&state)(tx))
			assert.Equal(d, "new", state)
			return nil
		}))
		d.requireUnread(1, 2)
		d.requireRead(2, "newer")
	})
}

func TestSQLReadsRunAtTheSameTime(t *testing.T) {
	onDatabases(t, func(d *database) {
		var inside, all sync.WaitGroup
		inside.Add(4)
		for token := range uint64(4) {
			all.Go(func() {
				enter := sync.OnceFunc(inside.Done)
				defer enter() // if this read fails, the others must not wait for it
				assert.NoError(d, d.read(token+1, func(tx *sql.Tx) error {
					enter()
					inside.Wait()
					return d.load(new(string))(tx)
				}))
			})
		}
		all.Wait()
	})
}

// A reader that comes while an older holder writes must see all of that write.
func TestSQLReadWaitsForAWriterWithin(t *testing.T) {
	onDatabases(t, func(d *database) {
		found, read := "", make(chan error, 1)
		require.NoError(d, d.do(1, func(tx *sql.Tx) error {
			go func() { read <- d.read(2, d.load(&found)) }()
			if d.kind == kindSQLite {
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // SQLite cannot say whether the reader waits yet
			} else {
				d.awaitWaiting(1)
			}
			return d.save("saved")(tx)
		}))
		require.NoError(d, <-read)
		assert.Equal(d, "saved", found)
	})
}
