package main

import (
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

// orders is the resource. The lock for the order at /orders/17 may have any name, if all holders use the same name.
type orders struct {
	db    *sql.DB
	guard *fencing.SQL
}

// put saves an order, unless the token of the request is older than one that the order has seen.
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
