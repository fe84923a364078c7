package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
)

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
