package main

import (
	"context"
	"database/sql"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/fencing"
)

// load returns a function for Read that stores the state of id in *state.
func (d *database) load(ctx context.Context, id string, state *string) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, d.query(selectState), id).Scan(state)
	}
}

// look reads with a token, whatever it finds.
func (d *database) look(ctx context.Context, id string, token uint64) error {
	return d.Read(ctx, id, token, d.load(ctx, id, new(string)))
}

// requireRead requires that a read with token finds the state.
func (d *database) requireRead(t require.TestingT, id string, token uint64, state string) {
	ctx, found := context.Background(), ""
	require.NoError(t, d.Read(ctx, id, token, d.load(ctx, id, &found)))
	require.Equal(t, state, found)
}

// requireUnread requires that a read with token is refused because a write had the token newest.
func (d *database) requireUnread(t require.TestingT, id string, token, newest uint64) {
	err := d.Read(context.Background(), id, token, func(*sql.Tx) error {
		return errors.New("called")
	})
	requireStale(t, err, token, newest)
}

func TestSQLReadersAndWriters(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		for _, p := range pairs {
			ctx, id := t.Context(), d.newResource(t)
			d.requireRead(t, id, p.newer, "new")
			requireStale(t, d.write(ctx, id, p.older, "late"), p.older, p.newer)
			d.requireRead(t, id, p.older, "new") // readers do not refuse each other
			d.requireRead(t, id, p.newer, "new")

			require.NoError(t, d.write(ctx, id, p.newer, "newer")) // a holder that has read may write
			d.requireRead(t, id, p.newer, "newer")                 // the writer may read too, as after Downgrade
			require.NoError(t, d.write(ctx, id, p.newer, "newer again"))
			d.requireUnread(t, id, p.older, p.newer)
			requireStale(t, d.write(ctx, id, p.older, "paused"), p.older, p.newer)
			require.ErrorIs(t, d.write(ctx, id, 0, "none"), fencing.ErrNoToken)
			require.ErrorIs(t, d.look(ctx, id, 0), fencing.ErrNoToken)
			assert.Equal(t, "newer again", d.state(t, id))
		}
	})
}

func TestSQLFailedReadCountsAsSeen(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, id := t.Context(), d.newResource(t)
		require.ErrorIs(t, d.Read(ctx, id, 2, func(*sql.Tx) error { return errWrite }), errWrite)
		requireStale(t, d.write(ctx, id, 1, "late"), 1, 2)
		require.Panics(t, func() { _ = d.Read(ctx, id, 4, func(*sql.Tx) error { panic("read") }) })
		requireStale(t, d.write(ctx, id, 3, "late"), 3, 4)
	})
}

// A newer holder writes while a transaction reads. The writer must not wait for the reader, and the
// reader must see nothing of the write.
func TestSQLReadIsOfOneTime(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, id := t.Context(), d.newResource(t)
		require.NoError(t, d.Read(ctx, id, 1, func(tx *sql.Tx) error {
			require.NoError(t, d.write(ctx, id, 2, "newer"))
			var state string
			require.NoError(t, d.load(ctx, id, &state)(tx))
			assert.Equal(t, "new", state)
			return nil
		}))
		d.requireUnread(t, id, 1, 2)
		d.requireRead(t, id, 2, "newer")
	})
}

func TestSQLReadsRunAtTheSameTime(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx := rigtest.Bounded(t)
		id := d.newResource(t)
		var inside, all sync.WaitGroup
		inside.Add(4)
		for token := range uint64(4) {
			all.Go(func() {
				enter := sync.OnceFunc(inside.Done)
				defer enter() // if this read fails, the others must not wait for it
				assert.NoError(t, d.Read(ctx, id, token+1, func(tx *sql.Tx) error {
					enter()
					inside.Wait()
					return d.load(ctx, id, new(string))(tx)
				}))
			})
		}
		all.Wait()
	})
}

// A reader that comes while an older holder writes must see all of that write.
func TestSQLReadWaitsForAWriterWithin(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx := rigtest.Bounded(t)
		id := d.newResource(t)
		found, read := "", make(chan error, 1)
		require.NoError(t, d.Do(ctx, id, 1, func(tx *sql.Tx) error {
			go func() { read <- d.Read(ctx, id, 2, d.load(ctx, id, &found)) }()
			if d.kind == kindSQLite {
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // SQLite cannot say whether the reader waits yet
			} else {
				d.awaitWaiting(t, 1)
			}
			return d.save(ctx, id, "saved")(tx)
		}))
		require.NoError(t, <-read)
		assert.Equal(t, "saved", found)
	})
}

func TestSQLReadDoesNotWrite(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, id := t.Context(), d.newResource(t)
		err := d.Read(ctx, id, 1, d.save(ctx, id, "by a reader"))
		assert.Equal(t, d.kind != kindSQLite, err != nil, "%v", err)
		assert.Equal(t, "new", d.state(t, id))
	})
}

// TestSQLManyReadersAndWriters lets many goroutines save and read tokens. A read must never find a
// token newer than its own. No write may have a token between the one that a read finds and its own.
func TestSQLManyReadersAndWriters(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx := rigtest.Bounded(t)
		id := d.newResource(t)
		var mu sync.Mutex
		var writes, reads []string // reads are pairs: a reader's token, and the token that it found
		var clock atomic.Uint64    // tokens are close to it, so that many are stale
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 40 {
					token := math.MaxInt64 + clock.Add(1) - mathrand.Uint64N(10)
					text, found := fencing.Text(token), ""
					var err error
					write := mathrand.IntN(4) == 0
					if write {
						err = d.write(ctx, id, token, text)
					} else {
						err = d.Read(ctx, id, token, d.load(ctx, id, &found))
					}
					if err != nil {
						assert.ErrorIs(t, err, fencing.ErrStale)
						continue
					}
					mu.Lock()
					if write {
						writes = append(writes, text)
					} else {
						reads = append(reads, text, found)
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		require.NotEmpty(t, writes)
		require.NotEmpty(t, reads)
		for i := 0; i < len(reads); i += 2 {
			token, found := reads[i], reads[i+1]
			if found == "new" {
				found = fencing.Text(0)
			}
			require.LessOrEqual(t, found, token)
			for _, w := range writes {
				require.False(t, found < w && w < token, "the read with token %s found %s, not the later write %s", token, found, w)
			}
		}
	})
}

// earlier holds the statements of package fencing in the version before Read was added.
type earlier struct{ create, raise, newest string }

func earlierOf(kind string) earlier {
	switch kind {
	case kindPostgreSQL:
		return earlier{
			`CREATE TABLE fencing_tokens (name TEXT PRIMARY KEY, token TEXT COLLATE "C" NOT NULL)`,
			`INSERT INTO fencing_tokens (name, token) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET token = GREATEST(fencing_tokens.token, excluded.token)`,
			`SELECT token FROM fencing_tokens WHERE name = $1`,
		}
	case kindMySQL:
		return earlier{
			`CREATE TABLE fencing_tokens (name VARBINARY(255) PRIMARY KEY,
				token CHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL) ENGINE = InnoDB`,
			`INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
				ON DUPLICATE KEY UPDATE token = GREATEST(token, VALUES(token))`,
			`SELECT token FROM fencing_tokens WHERE name = ? FOR UPDATE`,
		}
	}
	return earlier{
		`CREATE TABLE fencing_tokens (name TEXT PRIMARY KEY NOT NULL, token TEXT NOT NULL)`,
		`INSERT INTO fencing_tokens (name, token) VALUES (?, ?)
			ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token)`,
		`SELECT token FROM fencing_tokens WHERE name = ?`,
	}
}

var errEarlier = errors.New("refused by the earlier version")

// do is SQL.Do of that version.
func (e earlier) do(ctx context.Context, db *sql.DB, id string, token uint64, write func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, e.raise, id, fencing.Text(token)); err != nil {
		return err
	}
	var newest string
	if err := tx.QueryRowContext(ctx, e.newest, id).Scan(&newest); err != nil {
		return err
	}
	if newest != fencing.Text(token) {
		return errEarlier
	}
	if err := write(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// TestSQLEarlierVersion lets processes of an earlier version write as well, to a table that an earlier version has created.
func TestSQLEarlierVersion(t *testing.T) {
	onDatabases(t, func(t *testing.T, d *database) {
		ctx, before := t.Context(), earlierOf(d.kind)
		d.exec(t, `DROP TABLE fencing_tokens`)
		d.exec(t, before.create)
		old := d.newResource(t)
		require.NoError(t, before.do(ctx, d.db, old, 7, d.save(ctx, old, "old")))
		if d.kind == kindMySQL {
			require.NoError(t, d.Create(ctx)) // only MySQL needs another call of Create
		}
		d.requireUnread(t, old, 6, 7)
		d.requireRead(t, old, 7, "old")
		d.checkModel(t, "earlier", "do", "read", "read")
	})
}
