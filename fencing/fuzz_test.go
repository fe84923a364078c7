package fencing_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/embedded"
)

// The texts of two tokens are in the order of the tokens, and are the tokens.
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

// tokensOf makes tokens of a plan: each byte is one near the last, or near a border.
func tokensOf(plan []byte, number uint64) (tokens []uint64) {
	bases := []uint64{0, 10, 100, 1 << 53, math.MaxInt64, math.MaxUint64, number, number}
	for _, b := range plan[:min(len(plan), 20)] {
		tokens = append(tokens, bases[b>>4%8]+uint64(b%4)-1)
	}
	return tokens
}

// A resource is what a guard guards, seen from outside: write writes a token as its data.
type resource struct {
	write func(token uint64) error
	data  func() string
}

var canonical = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)

// checkGuard writes tokens to a resource where a text stands for the newest token, "" for
// none. Whatever that is: what is refused is not written, what is not refused is, and none
// comes after a greater one. Where the text is a token the guard does what Admit says.
func checkGuard(t *testing.T, r resource, known bool, newest uint64, tokens []uint64) {
	t.Helper()
	m := model{newest}
	var highest uint64 // that has been let in
	for _, token := range tokens {
		before := r.data()
		err := r.write(token)
		if err != nil {
			require.Equal(t, before, r.data(), "%d: %v", token, err)
		} else {
			require.Equal(t, strconv.FormatUint(token, 10), r.data())
			require.GreaterOrEqual(t, token, highest)
			highest = token
		}
		if known {
			m.requireErr(t, token, err)
		}
	}
}

// seeds are texts that may stand where a guard keeps its token.
var seeds = []string{
	"", "0", "7", "007", "00000000000000000007", "00000000000000000012", "9", "99", "10", "+7", "-7", " 7", "7 ", "7.0", "1e1", "abc", "\x00", "\xff", "9007199254740993",
	"18446744073709551615", "18446744073709551616", "99999999999999999999", "000000000000000000000007", strings.Repeat("9", 50), "0x7", "~", "null", "００７",
}

func addGuards(f *testing.F) {
	f.Helper()
	for _, text := range seeds {
		f.Add(text, []byte{0x02, 0x61, 0x62, 0x61, 0x12, 0x11, 0x13, 0x02, 0x53, 0x00}, uint64(8))
		f.Add(text, []byte{0x12, 0x11, 0x10, 0x03}, uint64(1))
		f.Add(text, []byte{0x51, 0x50, 0x31, 0x41, 0x23}, uint64(math.MaxInt64))
	}
}

func FuzzRedis(f *testing.F) {
	nodes := embedded.Start(1)
	client := nodes[0].Client()
	f.Cleanup(func() {
		_ = client.Close()
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
		known := text == "" || canonical.MatchString(text) && err == nil
		checkGuard(t, resource{
			func(token uint64) error { return guard.Set(ctx, "key", token, token, 0) },
			func() string { return nodes[0].HGet("key", "value") },
		}, known, n, tokensOf(plan, number))
		value, token, err := guard.Get(ctx, "key")
		if err == nil {
			require.Equal(t, strconv.FormatUint(token, 10), value)
		} else if known {
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
			n, err := strconv.ParseUint(text, 10, 64)
			known := text == "" || len(text) == 20 && err == nil && fencing.Text(n) == text
			checkGuard(t, resource{
				func(token uint64) error {
					return guard.Do(t.Context(), "name", token, func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), "WRITE", strconv.FormatUint(token, 10))
						return err
					})
				},
				func() string { return table.data },
			}, known, n, tokensOf(plan, number))
			require.NoError(t, db.Close())
		}
	})
}

// Guard goes by the tokens it has seen.
func FuzzGuard(f *testing.F) {
	f.Add([]byte{0x02, 0x61, 0x62, 0x61, 0x12, 0x11, 0x13, 0x02, 0x53, 0x00}, uint64(8))
	f.Add([]byte{0x51, 0x50, 0x31, 0x41, 0x23}, uint64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, plan []byte, number uint64) {
		var guard fencing.Guard
		data := ""
		checkGuard(t, resource{
			func(token uint64) error {
				return guard.Do(token, func() error { data = strconv.FormatUint(token, 10); return nil })
			},
			func() string { return data },
		}, true, 0, tokensOf(plan, number))
		newest := new(big.Int)
		newest.SetString(data, 10) // 0 where nothing was written
		require.Equal(t, newest.Uint64(), guard.Newest())
	})
}

// A table is a database with the table of the tokens, and a text. It understands what a
// guard says, and does it as the databases do; only one transaction is open at a time.
type table struct {
	rows   map[string]string
	data   string
	before *table // what a rollback brings back
}

var errWords = errors.New("the database does not understand")

func (d *table) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *table) Driver() driver.Driver                        { return nil }
func (d *table) Close() error                                 { return nil }

func (d *table) Begin() (driver.Tx, error) {
	d.before = &table{rows: maps.Clone(d.rows), data: d.data}
	return d, nil
}

func (d *table) Commit() error { d.before = nil; return nil }

func (d *table) Rollback() error {
	d.rows, d.data, d.before = d.before.rows, d.before.data, nil
	return nil
}

func (d *table) Prepare(query string) (driver.Stmt, error) { return statement{d, query}, nil }

type statement struct {
	*table
	query string
}

func (s statement) NumInput() int { return -1 }

func (s statement) Exec(args []driver.Value) (driver.Result, error) {
	switch word, _, _ := strings.Cut(s.query, " "); word {
	case "CREATE":
	case "WRITE":
		s.data = args[0].(string)
	case "INSERT":
		name, token := args[0].(string), args[1].(string)
		s.rows[name] = max(s.rows[name], token)
	default:
		return nil, fmt.Errorf("%w %q", errWords, s.query)
	}
	return driver.RowsAffected(1), nil
}

func (s statement) Query(args []driver.Value) (driver.Rows, error) {
	if !strings.HasPrefix(s.query, "SELECT token FROM fencing_tokens WHERE name = ") {
		return nil, fmt.Errorf("%w %q", errWords, s.query)
	}
	return &row{s.rows[args[0].(string)], false}, nil
}

type row struct {
	token string
	read  bool
}

func (*row) Columns() []string { return []string{"token"} }
func (*row) Close() error      { return nil }

func (r *row) Next(into []driver.Value) error {
	if r.read {
		return io.EOF
	}
	into[0], r.read = r.token, true
	return nil
}

// A token as Text writes it is none to Redis. What is not written is an error.
func TestRedisTextInPlaceOfAToken(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		r, ctx := fencing.NewRedis(client), t.Context()
		require.NoError(t, client.HSet(ctx, "key", "fence", fencing.Text(7)).Err())
		require.ErrorContains(t, r.Set(ctx, "key", "value", 8, 0), `"00000000000000000007" in place of a token`)
		require.ErrorIs(t, r.Set(ctx, "key", "value", 6, 0), fencing.ErrStale)
		require.False(t, client.HExists(ctx, "key", "value").Val())
	})
}
