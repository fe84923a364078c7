package fencing_test

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
)

// Two texts must sort like their tokens, because databases compare the texts. Each text must be the
// digits of its token.
func FuzzText(f *testing.F) {
	for _, p := range pairs {
		f.Add(p.older, p.newer)
	}
	f.Add(uint64(0), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		x, y := fencing.Text(a), fencing.Text(b)
		require.Equal(t, a < b, x < y)
		require.Equal(t, a == b, x == y)
		n, err := strconv.ParseUint(x, 10, 64)
		require.NoError(t, err)
		require.Equal(t, a, n)
		require.Regexp(t, `^[0-9]{20}$`, x)
	})
}

// A call is a write or a read with a token.
type call struct {
	token uint64
	read  bool
}

// callsOf makes calls from a plan. Each byte is a call with a token near number, or near a border.
// The highest bit makes it a read.
func callsOf(plan []byte, number uint64) (calls []call) {
	bases := []uint64{0, 10, 100, 1 << 53, math.MaxInt64, math.MaxUint64, number, number}
	for _, b := range plan[:min(len(plan), 20)] {
		calls = append(calls, call{bases[b>>4%8] + uint64(b%4) - 1, b >= 1<<7})
	}
	return calls
}

// A resource is what a guard protects, as its users see it. write writes token as the data. read
// and data return the data, "" if there is none; only read asks the guard.
type resource struct {
	write func(token uint64) error
	read  func(token uint64) (string, error)
	data  func() string
}

var canonical = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// checkGuard makes calls of a resource that keeps some text in place of its newest token. If the
// text is a token, known is what the guard has seen, and the guard must do what the model says.
// Otherwise known is nil. Whatever the text is, checkGuard requires this. A write that is
// refused changes nothing, and a write that is not refused is made. No write is admitted after a
// write or a read with a greater token. No read is admitted after a write with a greater token.
func checkGuard(t *testing.T, r resource, known *model, calls []call) {
	var admitted model
	for _, c := range calls {
		before := r.data()
		var err error
		if c.read {
			var got string
			if got, err = r.read(c.token); err == nil {
				require.Equal(t, before, got)
				require.GreaterOrEqual(t, c.token, admitted.write)
				admitted.read = max(admitted.read, c.token)
			}
			require.Equal(t, before, r.data())
			if known != nil {
				known.requireReadErr(t, c.token, err)
			}
			continue
		}
		if err = r.write(c.token); err != nil {
			require.Equal(t, before, r.data(), "%d: %v", c.token, err)
		} else {
			require.Equal(t, strconv.FormatUint(c.token, 10), r.data())
			require.GreaterOrEqual(t, c.token, admitted.newest())
			admitted.write = c.token
		}
		if known != nil {
			known.requireErr(t, c.token, err)
		}
	}
}

// seeds are texts that may stand where a guard keeps its token.
var seeds = strings.Split("00000000000000000006r00000000000000000003|00000000000000000006r00000000000000000006|"+
	"00000000000000000003r00000000000000000006|18446744073709551615r00000000000000000003|"+
	"18446744073709551614r18446744073709551613|18446744073709551616r00000000000000000003|"+
	"00000000000000000006r0000000000000000000x|00000000000000000006w00000000000000000003|"+
	"00000000000000000006r|0000000000000000000r00000000000000000003||0|7|007|00000000000000000007|"+
	"00000000000000000012|9|99|10|+7|-7| 7|7 |7.0|1e1|abc|\x00|\xff|9007199254740993|18446744073709551615|"+
	"18446744073709551616|99999999999999999999|000000000000000000000007|"+
	"99999999999999999999999999999999999999999999999999|0x7|~|null|００７", "|")

func addGuards(f *testing.F) {
	for _, text := range seeds {
		f.Add(text, []byte("\x02\x61\x62\x61\x12\x11\x13\x02\x53\x00"), uint64(8))
		f.Add(text, []byte("\x12\x11\x10\x03"), uint64(1))
		f.Add(text, []byte("\x51\x50\x31\x41\x23"), uint64(math.MaxInt64))
		f.Add(text, []byte("\x82\xe1\xe2\xe1\x61\xe1\x62\xe3\xe1\x62\xe2\x63\xe0"), uint64(8))
		f.Add(text, []byte("\xd1\xd0\x50\x51\xd0\x80\xb1\xc1"), uint64(math.MaxInt64))
	}
}

func FuzzRedis(f *testing.F) {
	nodes := embedded.Start(1)
	client := nodes[0].Client()
	f.Cleanup(func() {
		client.Close()
		nodes.Close()
	})
	addGuards(f)
	f.Fuzz(func(t *testing.T, text string, plan []byte, number uint64) {
		ctx, guard := context.Background(), fencing.NewRedis(client)
		nodes[0].FlushAll()
		if text != "" {
			nodes[0].HSet("key", "fence", text)
		}
		n, err := strconv.ParseUint(text, 10, 64)
		var known *model
		if text == "" || canonical.MatchString(text) && err == nil {
			known = &model{write: n}
		}
		calls := callsOf(plan, number)
		checkGuard(t, resource{
			func(token uint64) error { return guard.Set(ctx, "key", token, token, 0) },
			func(token uint64) (string, error) {
				value, err := guard.Read(ctx, "key", token, 0)
				if errors.Is(err, redis.Nil) {
					err = nil
				}
				return value, err
			},
			func() string { return nodes[0].HGet("key", "value") },
		}, known, calls)
		value, token, err := guard.Get(ctx, "key")
		if err == nil {
			n, err := strconv.ParseUint(value, 10, 64)
			require.NoError(t, err)
			require.LessOrEqual(t, n, token)
		} else if known != nil {
			require.ErrorIs(t, err, redis.Nil)
		}
	})
}

func FuzzSQL(f *testing.F) {
	addGuards(f)
	f.Fuzz(func(t *testing.T, text string, plan []byte, number uint64) {
		for name, of := range map[string]func(*sql.DB) *fencing.SQL{
			"PostgreSQL": fencing.NewPostgreSQL, "SQLite": fencing.NewSQLite, "MySQL": fencing.NewMySQL,
		} {
			table := &table{rows: map[string]string{}}
			if text != "" {
				table.rows["name"] = text
			}
			db := sql.OpenDB(table)
			guard := of(db)
			require.NoError(t, guard.Create(t.Context()), name)
			known := knownText(text)
			checkGuard(t, resource{
				func(token uint64) error {
					return guard.Do(t.Context(), "name", token, func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), "WRITE", strconv.FormatUint(token, 10))
						return err
					})
				},
				func(token uint64) (data string, err error) {
					err = guard.Read(t.Context(), "name", token, func(tx *sql.Tx) error {
						return tx.QueryRowContext(t.Context(), "READ").Scan(&data)
					})
					return data, err
				},
				func() string { return table.data },
			}, known, callsOf(plan, number))
			require.NoError(t, db.Close())
		}
	})
}

// knownText returns what a guard has seen if its table keeps text. It returns nil if text is not of the guard's form.
func knownText(text string) *model {
	if text == "" {
		return new(model)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && fencing.Text(n) == text {
		return &model{write: n}
	}
	before, written, _ := strings.Cut(text, "r")
	b, err := strconv.ParseUint(before, 10, 64)
	w, err2 := strconv.ParseUint(written, 10, 64)
	if err == nil && err2 == nil && w <= b && b < math.MaxUint64 && text == fencing.Text(b)+"r"+fencing.Text(w) {
		return &model{write: w, read: b + 1}
	}
	return nil
}

// A table plays a database that has the table of the tokens, and a text as its data. It understands
// the statements of a guard, and executes them as real databases do. Only one transaction can be
// open at a time.
type table struct {
	rows   map[string]string
	width  int // of the column token, 0 for any: what is wider is cut off
	data   string
	before *table // the state that a rollback restores
	at     string // where it fails: BEGIN, COMMIT, or how statements begin
	fails  int    // so many of the next statements fail
	how    error  // of statements that fail; errUnwell if it is nil
	begun  driver.TxOptions
	closed int // connections
}

var (
	errWords  = errors.New("the database does not understand")
	errUnwell = errors.New("the database is unwell")
)

func (d *table) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *table) Driver() driver.Driver                        { return nil }
func (d *table) Close() error                                 { d.closed++; return nil }

func (d *table) Begin() (driver.Tx, error) {
	return d.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx keeps the options. They have no effect: only one transaction is open at a time.
func (d *table) BeginTx(_ context.Context, options driver.TxOptions) (driver.Tx, error) {
	if d.at == "BEGIN" {
		return nil, errUnwell
	}
	d.begun, d.before = options, &table{rows: maps.Clone(d.rows), data: d.data}
	return d, nil
}

func (d *table) Commit() error {
	if d.at == "COMMIT" {
		return errUnwell
	}
	d.before = nil
	return nil
}

func (d *table) Rollback() error {
	d.rows, d.data, d.before = d.before.rows, d.before.data, nil
	return nil
}

func (d *table) Prepare(query string) (driver.Stmt, error) {
	if d.fails--; d.fails >= 0 || d.at != "" && strings.HasPrefix(query, d.at) {
		return nil, cmp.Or(d.how, errUnwell)
	}
	return statement{d, query}, nil
}

type statement struct {
	*table
	query string
}

func (statement) Close() error  { return nil }
func (statement) NumInput() int { return -1 }

func (s statement) Exec(args []driver.Value) (driver.Result, error) {
	switch word, _, _ := strings.Cut(s.query, " "); word {
	case "CREATE", "SET", "PRAGMA":
	case "WRITE":
		s.data = args[0].(string)
	case "INSERT":
		name, token := args[0].(string), args[1].(string)
		if s.width > 0 {
			token = token[:min(len(token), s.width)]
		}
		kept, found := s.rows[name]
		switch {
		case len(token) == 20:
			s.rows[name] = max(kept, token)
		case !found:
			s.rows[name] = token
		case kept < token[:21]:
			s.rows[name] = token[:21] + kept[max(0, len(kept)-20):]
		}
	default:
		return nil, fmt.Errorf("%w %q", errWords, s.query)
	}
	return driver.RowsAffected(1), nil
}

func (s statement) Query(args []driver.Value) (driver.Rows, error) {
	switch {
	case s.query == "READ":
		return &row{s.data, false}, nil
	case strings.HasPrefix(s.query, "SELECT token FROM fencing_tokens WHERE name = "):
		return &row{s.rows[args[0].(string)], false}, nil
	case s.query == "PRAGMA busy_timeout":
		return &row{int64(0), false}, nil
	}
	return nil, fmt.Errorf("%w %q", errWords, s.query)
}

type row struct {
	column driver.Value
	read   bool
}

func (*row) Columns() []string { return []string{"token"} }
func (*row) Close() error      { return nil }

func (r *row) Next(into []driver.Value) error {
	if r.read {
		return io.EOF
	}
	into[0], r.read = r.column, true
	return nil
}
