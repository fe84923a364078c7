// Package redsyncotel measures and traces the locks of package redsync with OpenTelemetry.
//
//	hooks, err := redsyncotel.NewHooks()
//	if err != nil {
//		return err
//	}
//	rs = rs.With(redsync.WithHooks(hooks))
//
// README.md lists the metrics with their attributes, and how many series there can be. Do and Lead put a span around the
// function that runs under the lock.
//
// # What the hooks do to a lock
//
// Recording takes no lock that an exporter holds, and waits for nobody: an exporter that blocks delays no lock. What
// follows holds for the SDK's PeriodicReader, ManualReader and BatchSpanProcessor. A span processor that exports in
// OnEnd (WithSyncer) runs on the goroutine of the call, and delays it.
//
// A panic of a provider, of a span processor or of an exporter goes to otel.Handle. It reaches neither the caller of Lock,
// Do or Lead nor the goroutine that reads a node's replies.
//
// # What it never tells
//
// No attribute, span name or status has the text of an error, the address of a node or the value of a lock. Only WithName
// makes it tell names of locks.
//
// This package is experimental, and so are the names of metrics, attributes and spans (docs/versions.md).
package redsyncotel
