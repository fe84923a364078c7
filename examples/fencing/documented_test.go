package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// The tests in this file execute what the documentation says. They take the SQL from the pages and doc comments, so
// that it is not written twice.

const root = "../../"

// A shownStatement is an SQL statement that the documentation shows.
type shownStatement struct{ file, text string }

var (
	shown = regexp.MustCompile("(?m)(?:^(?://)?\\s*|`)((?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|BEGIN|COMMIT)\\b[^`;\n]*)")
	// doc matches doc comments.
	doc = regexp.MustCompile(`(?m)^//.*$`)
)

// shownStatements returns the SQL of the README, of the pages, and of package fencing: its doc comments and examples. page_test.go
// executes the page about fencing.
var shownStatements = sync.OnceValues(func() (statements []shownStatement, err error) {
	for _, pattern := range []string{"README.md", "docs/*.md", "fencing/*.go"} {
		files, err := filepath.Glob(root + pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if filepath.Base(file) == "fencing.md" {
				continue
			}
			found, err := shownIn(file)
			if err != nil {
				return nil, err
			}
			statements = append(statements, found...)
		}
	}
	return statements, nil
})

// shownIn returns the SQL that a file shows. In tests only examples show something.
func shownIn(file string) (statements []shownStatement, err error) {
	bytes, err := os.ReadFile(file)
	text, name := string(bytes), filepath.Base(file)
	switch {
	case err != nil:
		return nil, err
	case name == "example_test.go":
	case strings.HasSuffix(name, "_test.go"):
		return nil, nil
	case strings.HasSuffix(name, ".go"):
		text = strings.Join(doc.FindAllString(text, -1), "\n")
	}
	for _, match := range shown.FindAllStringSubmatch(text, -1) {
		statements = append(statements, shownStatement{name, strings.TrimSpace(match[1])})
	}
	if len(statements) < strings.Count(text, "```sql") {
		return nil, fmt.Errorf("%s: a block of SQL without a statement", file)
	}
	return statements, nil
}

// shownOnce returns the one statement in a file of that name that has the text part.
func shownOnce(t *testing.T, file, part string) string {
	statements, err := shownStatements()
	require.NoError(t, err)
	var found []string
	for _, s := range statements {
		if s.file == file && strings.Contains(s.text, part) {
			found = append(found, s.text)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// columnType returns the type that the documentation gives to a column for tokens.
func columnType(t *testing.T, kind string) string {
	source, err := os.ReadFile(root + "fencing/sql.go")
	require.NoError(t, err)
	comment := strings.ReplaceAll(string(source), "\n// ", " ")
	types := regexp.MustCompile(`in PostgreSQL (.+?), in SQLite (.+?), in MySQL (.+?)\):`).FindStringSubmatch(comment)
	require.Len(t, types, 4)
	return types[map[string]int{kindPostgreSQL: 1, kindSQLite: 2, kindMySQL: 3}[kind]]
}

// createOrders creates the tables of the documentation: orders, with the column fence, and items.
func (d *database) createOrders() {
	d.exec(fmt.Sprintf(`CREATE TABLE orders (id INTEGER PRIMARY KEY, state VARCHAR(100) NOT NULL, fence %s NOT NULL DEFAULT '%s')`,
		columnType(d.T, d.kind), fencing.Text(0)))
	d.exec(`CREATE TABLE items (order_id INTEGER NOT NULL, cents INTEGER NOT NULL)`)
	d.exec(`INSERT INTO orders (id, state) VALUES (17, 'new')`)
	d.exec(`INSERT INTO items (order_id, cents) VALUES (17, 100)`)
}

// createShown creates the table of the tokens as the doc comments say.
func (d *database) createShown() {
	part := map[string]string{kindPostgreSQL: ` COLLATE "C" NOT NULL`, kindMySQL: "ENGINE = InnoDB", kindSQLite: "PRIMARY KEY NOT NULL,"}[d.kind]
	d.exec(shownOnce(d.T, "sql.go", part))
}

// argument matches a placeholder, and the column that is assigned or compared.
var argument = regexp.MustCompile(`(\w+) *(?:=|<|<=) *\?`)

// arguments returns values for the placeholders of a statement.
func arguments(t require.TestingT, query string, values map[string]any) (args []any) {
	for _, match := range argument.FindAllStringSubmatch(query, -1) {
		require.Contains(t, values, match[1])
		args = append(args, values[match[1]])
	}
	require.Len(t, args, strings.Count(query, "?"))
	return args
}

// Statements of package fencing are for all databases, the others for PostgreSQL.
func TestShownStatements(t *testing.T) {
	statements, err := shownStatements()
	require.NoError(t, err)
	require.NotEmpty(t, statements)
	onDatabases(t, func(d *database) {
		d.createOrders()
		tx, err := d.db.Conn(d.Context()) // one connection, because pages show BEGIN and COMMIT
		require.NoError(d, err)
		defer func() { require.NoError(d, tx.Close()) }()
		for _, s := range statements {
			if strings.Contains(s.text, "fencing_tokens") || !strings.HasSuffix(s.file, ".go") && d.kind != kindPostgreSQL {
				continue // create has executed the first
			}
			values := map[string]any{"id": 17, "state": "paid", "fence": fencing.Text(5)}
			_, err := tx.ExecContext(d.Context(), d.query(s.text), arguments(d, s.text, values)...)
			require.NoError(d, err, s)
		}
	})
}

// The page says of the statement with the unique key that it affects no row the second time.
func TestShownUniqueKey(t *testing.T) {
	d := empty(t, kindPostgreSQL, session{})
	d.exec(shownOnce(t, "when-to-lock.md", "CREATE TABLE invoices"))
	insert := shownOnce(t, "when-to-lock.md", "INSERT INTO invoices")
	assert.EqualValues(t, 1, d.exec(insert))
	assert.EqualValues(t, 0, d.exec(insert))
}

// shownUpdate returns the statement that writes to a row with a column for the token.
func shownUpdate(t *testing.T) string { return shownOnce(t, "sql.go", "fence <= ?") }

// The documentation says that in MySQL, without clientFoundRows=true, a statement that writes what is there already
// affects no row.
func TestColumnOfYourOwn(t *testing.T) {
	update := shownUpdate(t)
	onDatabases(t, func(d *database) {
		d.createOrders()
		again := 1
		if strings.HasSuffix(d.Name(), "/"+kindMySQL) { // in the other case clientFoundRows is true
			again = 0
		}
		for _, p := range pairs {
			d.exec(`UPDATE orders SET state = 'new', fence = ? WHERE id = 17`, fencing.Text(0))
			save := func(state string, token uint64) int64 {
				values := map[string]any{"state": state, "fence": fencing.Text(token), "id": 17}
				return d.exec(update, arguments(d, update, values)...)
			}
			require.EqualValues(d, 1, save("older", p.older))
			require.EqualValues(d, 1, save("newer", p.newer))
			require.EqualValues(d, 1, save("newer again", p.newer))
			require.EqualValues(d, again, save("newer again", p.newer))
			require.EqualValues(d, 0, save("paused", p.older))
			var state, fence string
			require.NoError(d, d.db.QueryRowContext(d.Context(), `SELECT state, fence FROM orders WHERE id = 17`).
				Scan(&state, &fence))
			assert.Equal(d, "newer again", state)
			assert.Equal(d, fencing.Text(p.newer), fence)
		}
	})
}

// TestColumnsOfYourOwn tests the statements that the doc of fencing.SQL gives for readers. The row has a second column,
// written, which the statement of the writers sets too.
func TestColumnsOfYourOwn(t *testing.T) {
	save := strings.Replace(shownUpdate(t), "fence = ?", "fence = ?, written = ?", 1)
	raise := shownOnce(t, "sql.go", "fence < ?")
	onDatabases(t, func(d *database) {
		d.createOrders()
		column := columnType(d.T, d.kind)
		d.exec(fmt.Sprintf(`ALTER TABLE orders ADD COLUMN written %s NOT NULL DEFAULT '%s'`, column, fencing.Text(0)))
		load := d.query(`SELECT state, written FROM orders WHERE id = ?`)
		id := 17
		rapid.Check(d.T, func(t *rapid.T) {
			d = d.on(t)
			id++
			state := "new"
			var write, read uint64 // the highest token of a write, and of a read
			d.exec(`INSERT INTO orders (id, state) VALUES (?, ?)`, id, state)
			for i := range rapid.IntRange(1, 10).Draw(t, "calls") {
				base := rapid.SampledFrom([]uint64{write, read, math.MaxInt64}).Draw(t, "base")
				token := max(base+uint64(rapid.Int64Range(-2, 3).Draw(t, "step")), 1)
				text, next := fencing.Text(token), fmt.Sprint("state ", i)
				values := map[string]any{"id": id, "state": next, "fence": text, "written": text}
				if rapid.Bool().Draw(t, "read") {
					d.exec(raise, arguments(t, raise, values)...)
					var found, written string
					require.NoError(t, d.db.QueryRowContext(context.Background(), load, id).Scan(&found, &written))
					require.Equal(t, token >= write, text >= written)
					require.Equal(t, state, found)
					read = max(read, token)
					continue
				}
				rows := d.exec(save, arguments(t, save, values)...)
				require.Equal(t, token >= max(write, read), rows > 0)
				if rows > 0 {
					write, state = token, next
				}
			}
		})
	})
}
