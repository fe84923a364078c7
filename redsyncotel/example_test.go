package redsyncotel_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// Locks are measured by the providers of the program, with the kind of work as a name.
func Example() {
	nodes := redsynctest.New(5) // in a program: redsync.Open
	defer nodes.Close()
	kind := func(lock string) string {
		name, _, _ := strings.Cut(lock, ":")
		return name
	}
	hooks, err := redsyncotel.NewHooks(redsyncotel.WithName(kind))
	if err != nil {
		fmt.Println(err)
		return
	}
	rs := nodes.Redsync().With(redsync.WithHooks(hooks))
	err = redsyncotel.Do(context.Background(), rs, "order:17", func(context.Context) error {
		fmt.Println("working, in a span")
		return nil
	})
	fmt.Println(err)
	// Output:
	// working, in a span
	// <nil>
}
