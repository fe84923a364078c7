// Fencing shows a resource that refuses a holder whose lock has ended: a server for orders in an
// SQLite file. A request to save an order carries the fencing token of the holder's lock in the
// header Fencing-Token. In one transaction the server raises the newest token of the order and
// saves the order. It answers an older token with 412 Precondition Failed and both tokens.
//
//	go run ./examples/fencing                      # a temporary file
//	go run ./examples/fencing -db /tmp/orders.db   # a file that stays, with the tokens in it
//
// The program runs the server on a loopback port, five nodes inside the process, and two holders
// of one lock. The first holder sends its request late: the second holder has the lock by then, and
// has saved the order. The program ends with status 1 if the late request is not refused, and with
// 2 for bad flags.
//
// Read server.go: it shows what a resource needs.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/cli"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

var program = rig.Program{Name: "fencing", Command: command}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fencing", flag.ContinueOnError)
	file := flags.String("db", "", "SQLite `file`, in a folder that can be written; none: a temporary one")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if *file != "" {
		if err := cli.File("db", *file); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return run(ctx, *file, out)
}

// run serves the orders in file, and plays the two holders.
func run(ctx context.Context, file string, out io.Writer) error {
	if file == "" {
		dir, err := os.MkdirTemp("", "fencing")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "orders.db")
	}
	db, err := openSQLite(file)
	if err != nil {
		return err
	}
	defer db.Close()
	orders := &orders{db, fencing.NewSQLite(db)}
	if err := orders.create(ctx); err != nil {
		return err
	}
	server := httptest.NewServer(orders)
	defer server.Close()
	return play(ctx, &client{server.Client(), server.URL + "/orders/17"}, out)
}

// openSQLite opens file with a busy timeout: while the database is locked, concurrent calls of the
// fencing guard then wait instead of failing.
func openSQLite(file string) (*sql.DB, error) {
	return sql.Open("sqlite", sqliteAddress(file))
}

func sqliteAddress(file string) string {
	return "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)"
}

// expiry is the expiry of the late holder's lock.
const expiry = 200 * time.Millisecond

// play makes one holder send its request late.
func play(ctx context.Context, order *client, out io.Writer) error {
	nodes := redsynctest.New(5)
	defer nodes.Close()
	rs := nodes.Redsync()

	late := rs.NewMutex("orders:17", redsync.WithFencing(), redsync.WithExpiry(expiry))
	if err := late.LockContext(ctx); err != nil {
		return err
	}
	lateToken := late.Fence() // right after Lock
	_, _ = fmt.Fprintf(out, "A has the lock, token %d, and is late\n", lateToken)

	next := rs.NewMutex("orders:17", redsync.WithFencing())
	if err := next.LockContext(ctx); err != nil { // waits until A's lock expires
		return err
	}
	defer next.Unlock()
	_, _ = fmt.Fprintf(out, "B has the lock, token %d\n", next.Fence())

	for _, request := range []struct {
		who, state string
		token      uint64
	}{{"B", "paid", next.Fence()}, {"A", "cancelled", lateToken}} {
		answer, err := order.save(ctx, request.state, request.token)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "%s saves %q: %s\n", request.who, request.state, answer)
	}
	state, err := order.load(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "the order is %q\n", state)
	if state != "paid" {
		return errors.New("the late request was not refused")
	}
	return nil
}

// A client sends requests for one order.
type client struct {
	http *http.Client
	url  string
}

// save asks the server to save state, and returns the answer as one line.
func (c *client) save(ctx context.Context, state string, token uint64) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.url, strings.NewReader(state))
	if err != nil {
		return "", err
	}
	req.Header.Set(tokenHeader, strconv.FormatUint(token, 10))
	status, text, err := c.do(req)
	return strings.TrimSpace(status + ": " + text), err
}

// load returns the state that the server has.
func (c *client) load(ctx context.Context) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return "", err
	}
	_, text, err := c.do(req)
	return text, err
}

func (c *client) do(req *http.Request) (status, text string, err error) {
	res, err := c.http.Do(req)
	if err != nil {
		return "", "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.Status, string(body), err
}
