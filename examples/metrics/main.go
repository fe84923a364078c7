// Metrics shows what Prometheus is told of locks: one that was had, one that was taken, one that was lost, and a node that
// is down. It prints the page that Prometheus reads.
//
//	go run ./examples/metrics                                  # five nodes inside the process; takes 3 s
//	go run ./examples/metrics -listen localhost:2112           # then serves the page at /metrics, until Ctrl-C
//	go run ./examples/metrics -nodes host1:6379,host2:6379,... # on nodes of your own, none of which goes down
//
// metrics/metrics.go has the hooks, which you may copy. The rest is this scene.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/examples/internal/rig"
	"github.com/seed14bd9ef4/redsync/examples/metrics/metrics"
)

var program = rig.Program{Name: "metrics", Command: command}

func main() { program.Main() }

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("metrics", flag.ContinueOnError)
	listen := flags.String("listen", "", "serve the page at this `address` in the end")
	nodes, err := rig.WithInside(flags, args)
	if err != nil {
		return err
	}
	defer nodes.Close()
	registry := prometheus.NewRegistry()
	rs, err := nodes.Open(ctx, redsync.WithHooks(metrics.New(registry)), redsync.WithExpiry(2*time.Second))
	if err != nil {
		return err
	}
	defer func() { _ = rs.Close(context.WithoutCancel(ctx)) }()
	if err := play(ctx, rs, nodes); err != nil {
		return err
	}
	if err := printed(registry, out); err != nil || *listen == "" {
		return err
	}
	return serve(ctx, *listen, registry, out)
}

// play lets happen what the hooks are told of.
func play(ctx context.Context, rs *redsync.Redsync, nodes *rig.Nodes) error {
	if err := rs.NewMutex("orders:17").LockContext(ctx); err != nil {
		return err
	}
	if err := rs.NewMutex("orders:17").TryLockContext(ctx); !errors.Is(err, redsync.ErrFailed) {
		return fmt.Errorf("a lock that is held was not refused: %w", err)
	}
	if nodes.Off != nil {
		nodes.Off(4)
	}
	if err := rs.NewMutex("orders:18").LockContext(ctx); err != nil {
		return err
	}
	select { // nobody extends or unlocks these locks, so they are lost
	case <-time.After(3 * time.Second):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// printed writes the page that Prometheus reads.
func printed(registry *prometheus.Registry, out io.Writer) error {
	families, err := registry.Gather()
	for _, family := range families {
		if err == nil {
			_, err = expfmt.MetricFamilyToText(out, family)
		}
	}
	return err
}

// serve serves the page until ctx is done.
func serve(ctx context.Context, address string, registry *prometheus.Registry, out io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	_, _ = fmt.Fprintf(out, "\nhttp://%s/metrics\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
