package main

import (
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed14bd9ef4/redsync/examples/internal/rig/rigtest"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/internal/testkit/testlength"
)

func TestMain(m *testing.M) {
	if holder := os.Getenv(envHolder); holder != "" {
		hold(strings.Split(holder, "\n"))
		return
	}
	logging.Disable()
	goleak.VerifyTestMain(thenStop{m})
}

// thenStop runs the tests, and then ends the servers that they have started.
type thenStop struct{ tests *testing.M }

func (s thenStop) Run() int {
	defer stopServers()
	return s.tests.Run()
}

func TestRunRefusesTheLateHolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.db")
	for range 2 { // the second run finds the tokens of the first in the file
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), file, &out))
		assert.Regexp(t, `^A has the lock, token (\d+), and is late
B has the lock, token (\d+)
B saves "paid": 204 No Content:
A saves "cancelled": 412 Precondition Failed: fencing: token \d+ is stale: the resource has seen \d+
the order is "paid"
$`, out.String())
	}
}

func TestRunFiles(t *testing.T) {
	require.NoError(t, run(t.Context(), "", io.Discard)) // a temporary file
	require.Error(t, run(t.Context(), filepath.Join(t.TempDir(), "none", "orders.db"), io.Discard))
}

func TestCommandExitStatus(t *testing.T) {
	testlength.NotWhileAPersonWaits(t)
	none := filepath.Join(t.TempDir(), "none", "orders.db")
	rigtest.Statuses(t, program,
		rigtest.Case{Args: []string{"-db"}, Status: cli.Misuse, Err: "flag needs an argument: -db (-db: SQLite file, in a folder that can be written; none: a temporary one)"},
		rigtest.Case{Args: []string{"-db", none}, Status: cli.Misuse, Err: "-db " + none + ": it must be a file in a folder that can be written: no such file or directory"})
}

func TestServer(t *testing.T) {
	db, err := openSQLite(filepath.Join(t.TempDir(), "orders.db"))
	require.NoError(t, err)
	defer db.Close()
	o := &orders{db, fencing.NewSQLite(db)}
	require.NoError(t, o.create(t.Context()))
	call := func(method, path, token, body string) (status, answer string) {
		r := httptest.NewRequest(method, path, strings.NewReader(strings.Replace(body, "long", strings.Repeat("x", maxState+1), 1)))
		if token != "" {
			r.Header.Set("Fencing-Token", token)
		}
		w := httptest.NewRecorder()
		o.ServeHTTP(w, r)
		return strconv.Itoa(w.Code), strings.TrimSpace(w.Body.String())
	}
	for row := range strings.SplitSeq(`GET | /orders/17 | | | 404 | no such order
PUT    | /orders/17 | 42 | paid | 204 |
PUT    | /orders/17 | 41 | open | 412 | fencing: token 41 is stale: the resource has seen 42
GET    | /orders/17 |    |      | 200 | paid
PUT    | /orders/17 | 42 | sent | 204 |
GET    | /orders/17 |    |      | 200 | sent
PUT    | /orders/18 | 41 | open | 204 |
PUT    | /orders/17 | 18446744073709551615 | done | 204 |
PUT    | /orders/17 | 18446744073709551614 | open | 412 | fencing: token 18446744073709551614 is stale: the resource has seen 18446744073709551615
PUT    | /orders/17 | 0  | open | 412 | fencing: token 0: lock with WithFencing, and call Fence while the lock is held
PUT    | /orders/17 |    | open | 428 | Fencing-Token: strconv.ParseUint: parsing "": invalid syntax
PUT    | /orders/17 | -1 | open | 428 | Fencing-Token: strconv.ParseUint: parsing "-1": invalid syntax
PUT    | /orders/17 | 18446744073709551615 | long | 400 | http: request body too large
DELETE | /orders/17 | 42 |      | 405 | GET or PUT
GET    | /orders/17 |    |      | 200 | done`, "\n") {
		cells := strings.Split(row, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		status, answer := call(cells[0], cells[1], cells[2], cells[3])
		assert.Equal(t, cells[4:], []string{status, answer}, row)
	}
	require.NoError(t, db.Close())
	status, _ := call("GET", "/orders/17", "", "")
	assert.Equal(t, "500", status)
}
