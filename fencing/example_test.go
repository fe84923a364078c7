package fencing_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/fencing"
	"github.com/seed14bd9ef4/redsync/internal/testkit/embedded"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// The lock of a paused holder expires without the holder's knowledge. The guard then refuses the holder's write.
func Example() {
	nodes := redsynctest.New(5) // in production: redsync.Open
	defer nodes.Close()
	rs := nodes.Redsync()
	var guard fencing.Guard // in the process that has the data
	var data string
	save := func(text string) func() error {
		return func() error { data = text; return nil }
	}

	paused := rs.NewMutex("orders:17", redsync.WithFencing(), redsync.WithExpiry(100*time.Millisecond))
	if err := paused.Lock(); err != nil {
		log.Print(err)
		return
	}
	token := paused.Fence() // take it right after Lock
	// Here this holder is paused for longer than its expiry. Meanwhile:

	next := rs.NewMutex("orders:17", redsync.WithFencing())
	if err := next.Lock(); err != nil {
		log.Print(err)
		return
	}
	defer next.Unlock()
	fmt.Println("the next holder:", guard.Do(next.Fence(), save("by the next holder")))

	err := guard.Do(token, save("by the paused holder"))
	fmt.Println("the paused one is refused:", errors.Is(err, fencing.ErrStale))
	fmt.Println("data:", data)

	// Output:
	// the next holder: <nil>
	// the paused one is refused: true
	// data: by the next holder
}

func ExampleGuard_Do() {
	var guard fencing.Guard
	write := func() error { fmt.Println("written"); return nil }
	fmt.Println(guard.Do(42, write))
	fmt.Println(guard.Do(42, write)) // the same holder again
	fmt.Println(guard.Do(41, write)) // an earlier holder
	fmt.Println(guard.Do(0, write))  // a holder without WithFencing

	// Output:
	// written
	// <nil>
	// written
	// <nil>
	// fencing: token 41 is stale: the resource has seen 42
	// fencing: token 0: lock with WithFencing, and call Fence while the lock is held
}

// A read does not make the guard refuse another read. A late writer does not change what a reader
// has seen, and a late reader does not see what a newer holder is still writing.
func ExampleGuard_Read() {
	var guard fencing.Guard
	read := func() error { fmt.Println("read"); return nil }
	write := func() error { fmt.Println("written"); return nil }
	fmt.Println(guard.Read(42, read))
	fmt.Println(guard.Read(41, read))
	fmt.Println(guard.Do(40, write)) // the writer before both readers
	fmt.Println(guard.Do(43, write))
	fmt.Println(guard.Read(42, read)) // a late reader: its lock ended before token 43 was given
	fmt.Println(guard.Read(43, read)) // the writer itself may read, as after Downgrade

	// Output:
	// read
	// <nil>
	// read
	// <nil>
	// fencing: token 40 is stale: the resource has seen 42
	// written
	// <nil>
	// fencing: token 42 is stale: the resource has seen 43
	// read
	// <nil>
}

// A holder that reads before it writes calls Check first. So no earlier holder can write between
// its read and its write.
func ExampleGuard_Check() {
	var guards fencing.Guards
	stock := 10
	take := func(token uint64) error {
		guard := guards.For("stock")
		if err := guard.Check(token); err != nil {
			return err
		}
		left := stock - 1
		return guard.Do(token, func() error { stock = left; return nil })
	}
	fmt.Println(take(42), stock)
	fmt.Println(take(41), stock)

	// Output:
	// <nil> 9
	// fencing: token 41 is stale: the resource has seen 42 9
}

func ExampleRedis() {
	nodes := embedded.Start(1) // stands for the Redis that has the data
	defer nodes.Close()
	client := nodes[0].Client()
	defer client.Close()
	ctx := context.Background()

	data := fencing.NewRedis(client)
	fmt.Println(data.Set(ctx, "order:17", "paid", 42, 24*time.Hour))
	fmt.Println(data.Set(ctx, "order:17", "open", 41, 24*time.Hour))
	fmt.Println(data.Get(ctx, "order:17"))

	// Output:
	// <nil>
	// fencing: token 41 is stale: the resource has seen 42
	// paid 42 <nil>
}

func ExampleRedis_Read() {
	nodes := embedded.Start(1) // stands for the Redis that has the data
	defer nodes.Close()
	client := nodes[0].Client()
	defer client.Close()
	ctx := context.Background()

	data := fencing.NewRedis(client)
	fmt.Println(data.Set(ctx, "catalog", "spring", 40, 24*time.Hour))
	fmt.Println(data.Read(ctx, "catalog", 42, 24*time.Hour))
	fmt.Println(data.Read(ctx, "catalog", 41, 24*time.Hour)) // another reader
	fmt.Println(data.Set(ctx, "catalog", "late", 40, 24*time.Hour))
	fmt.Println(data.Set(ctx, "catalog", "summer", 43, 24*time.Hour))
	_, err := data.Read(ctx, "catalog", 42, 24*time.Hour)
	fmt.Println(err)

	// Output:
	// <nil>
	// spring <nil>
	// spring <nil>
	// fencing: token 40 is stale: the resource has seen 42
	// <nil>
	// fencing: token 42 is stale: the resource has seen 43
}

// The function may execute any number of statements on any tables, all in one transaction. Call
// Create before, when the program is deployed or starts: it creates the table of the tokens.
func ExampleSQL_Do() {
	pay := func(ctx context.Context, db *sql.DB, token uint64) error {
		guard := fencing.NewPostgreSQL(db)
		return guard.Do(ctx, "orders:17", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'paid' WHERE id = 17`)
			return err
		})
	}
	_ = pay // examples/fencing runs this with an SQLite file
}

// The function may make any number of queries of any tables. They all see the data of one point in time.
func ExampleSQL_Read() {
	total := func(ctx context.Context, db *sql.DB, token uint64) (cents int64, err error) {
		guard := fencing.NewPostgreSQL(db)
		err = guard.Read(ctx, "orders:17", token, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, `SELECT sum(cents) FROM items WHERE order_id = 17`).Scan(&cents)
		})
		return cents, err
	}
	_ = total
}

// A resource that can compare and write in one step needs only Admit. Here that is a record, which
// is replaced only if nobody has changed it since it was read.
func ExampleAdmit() {
	type record struct {
		text  string
		fence uint64 // the token of the holder that wrote text
	}
	var stored record
	swap := func(before, after record) bool { // compare-and-swap, as many databases have it
		if stored != before {
			return false
		}
		stored = after
		return true
	}
	write := func(text string, token uint64) error {
		for {
			before := stored
			if err := fencing.Admit(token, before.fence); err != nil {
				return err
			}
			if swap(before, record{text, token}) {
				return nil
			}
		}
	}
	fmt.Println(write("paid", 42), stored.text)
	fmt.Println(write("open", 41), stored.text)

	// Output:
	// <nil> paid
	// fencing: token 41 is stale: the resource has seen 42 paid
}

// fenced is middleware for a server whose data is in its process: the token comes in the header
// Fencing-Token. If the resource has seen a newer token, fenced answers 412 Precondition Failed
// with both tokens. If the request has no token, it answers 428 Precondition Required.
func fenced(guards *fencing.Guards, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := strconv.ParseUint(r.Header.Get("Fencing-Token"), 10, 64)
		if err != nil {
			http.Error(w, "Fencing-Token: "+err.Error(), http.StatusPreconditionRequired)
			return
		}
		// Read the whole body before the guard is locked: otherwise nobody could write while a slow
		// client sends its body.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		err = guards.For(r.URL.Path).Do(token, func() error {
			next.ServeHTTP(w, r)
			return nil
		})
		if err != nil { // the error is the guard's: next was not called
			http.Error(w, err.Error(), http.StatusPreconditionFailed)
		}
	})
}

// A server refuses requests of holders whose lock has ended.
func Example_http() {
	server := httptest.NewServer(fenced(new(fencing.Guards), http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "saved %s\n", text)
		})))
	defer server.Close()
	put := func(text, token string) {
		req, err := http.NewRequest(http.MethodPut, server.URL+"/orders/17", strings.NewReader(text))
		if err != nil {
			log.Print(err)
			return
		}
		req.Header.Set("Fencing-Token", token) // strconv.FormatUint(mutex.Fence(), 10)
		res, err := server.Client().Do(req)
		if err != nil {
			log.Print(err)
			return
		}
		defer res.Body.Close()
		answer, _ := io.ReadAll(res.Body)
		fmt.Printf("%d %s", res.StatusCode, answer)
	}
	put("paid", "42")
	put("open", "41")
	put("open", "")

	// Output:
	// 200 saved paid
	// 412 fencing: token 41 is stale: the resource has seen 42
	// 428 Fencing-Token: strconv.ParseUint: parsing "": invalid syntax
}
