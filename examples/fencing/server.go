package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/seed14bd9ef4/redsync/fencing"
)

// tokenHeader carries the fencing token of a request.
const tokenHeader = "Fencing-Token"

// maxState is how many bytes the state of an order may have.
const maxState = 1 << 10

func setToken(r *http.Request, token uint64) {
	r.Header.Set(tokenHeader, strconv.FormatUint(token, 10))
}

// orders is the resource. The lock for the order at /orders/17 may have any name, if all holders
// use the same name.
type orders struct {
	db    *sql.DB
	guard *fencing.SQL
}

// create creates the tables if they do not exist.
func (o *orders) create(ctx context.Context) error {
	if err := o.guard.Create(ctx); err != nil {
		return err
	}
	_, err := o.db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, state TEXT NOT NULL)`)
	return err
}

// ServeHTTP saves an order on PUT, which needs the token of the lock, and returns an order on
// GET, which needs no token.
func (o *orders) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPut:
		o.put(w, r)
	case http.MethodGet:
		o.get(w, r)
	default:
		http.Error(w, "GET or PUT", http.StatusMethodNotAllowed)
	}
}

func (o *orders) put(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseUint(r.Header.Get(tokenHeader), 10, 64)
	if err != nil {
		http.Error(w, tokenHeader+": "+err.Error(), http.StatusPreconditionRequired)
		return
	}
	// Read all of the body before the transaction, so that a slow client does not keep others
	// waiting.
	state, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxState))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := r.URL.Path
	err = o.guard.Do(r.Context(), id, token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(r.Context(), `INSERT INTO orders (id, state) VALUES (?, ?)
			ON CONFLICT (id) DO UPDATE SET state = excluded.state`, id, string(state))
		return err
	})
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, fencing.ErrStale), errors.Is(err, fencing.ErrNoToken):
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (o *orders) get(w http.ResponseWriter, r *http.Request) {
	var state string
	err := o.db.QueryRowContext(r.Context(), `SELECT state FROM orders WHERE id = ?`, r.URL.Path).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		http.Error(w, "no such order", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		_, _ = io.WriteString(w, state)
	}
}
