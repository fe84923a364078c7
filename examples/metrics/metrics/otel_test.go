package metrics_test

import (
	"encoding/json"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/seed14bd9ef4/redsync"
	"github.com/seed14bd9ef4/redsync/observe"
	"github.com/seed14bd9ef4/redsync/redsyncotel"
	"github.com/seed14bd9ef4/redsync/redsynctest"
)

// These tests scrape redsyncotel with Prometheus, and compare what it has with the dashboard and the alert rules there.
// They stand here because this module has a client of Prometheus already.

// scraped returns the labels of each metric that Prometheus gets: each name that a query may have.
func scraped(t *testing.T) map[string][]string {
	found := map[string]map[string]bool{}
	for line := range strings.SplitSeq(scrape(t), "\n") {
		sample := regexp.MustCompile(`^(redsync_\w+)(?:\{(.*)\})? `).FindStringSubmatch(line)
		if sample == nil {
			continue
		}
		if found[sample[1]] == nil {
			found[sample[1]] = map[string]bool{"job": true, "instance": true} // by Prometheus
		}
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(sample[2], -1) {
			found[sample[1]][label[1]] = true
		}
	}
	labels := map[string][]string{}
	for name, all := range found {
		labels[name] = slices.Sorted(maps.Keys(all))
	}
	return labels
}

// scrape lets locks be acquired, taken, extended, lost, and fail, and returns what Prometheus is told.
func scrape(t *testing.T) (page string) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
		require.NoError(t, err)
		hooks, err := redsyncotel.NewHooks(redsyncotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))))
		require.NoError(t, err)
		nodes := redsynctest.New(5)
		defer nodes.Close()
		rs := nodes.Redsync().With(redsync.WithHooks(hooks), redsync.WithExpiry(time.Second))
		require.NoError(t, rs.NewMutex("order:17", redsync.WithWatchdog()).Lock())
		require.Error(t, rs.NewMutex("order:17", redsync.WithTries(2)).Lock())
		nodes.Steal("order:17")
		for i := range 3 {
			nodes.Node(i).Down()
		}
		require.Error(t, rs.NewMutex("order:18").TryLock())
		time.Sleep(10 * time.Second)
		hooks.EventsDropped(t.Context(), observe.EventsDropped{Events: 1})
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		page = w.Body.String()
		assert.NotContains(t, page, "order:")
		assert.Contains(t, page, `otel_scope_version="(devel)"`)
	})
	return page
}

// The names that Prometheus makes of the instruments.
func TestPrometheusNamesOfOpenTelemetry(t *testing.T) {
	found := scraped(t)
	assert.Equal(t, `redsync_acquire_duration_seconds_bucket
redsync_acquire_duration_seconds_count
redsync_acquire_duration_seconds_sum
redsync_events_dropped_total
redsync_extend_total
redsync_held
redsync_hold_duration_seconds_bucket
redsync_hold_duration_seconds_count
redsync_hold_duration_seconds_sum
redsync_lost_total
redsync_node_down_total
redsync_node_duration_seconds_bucket
redsync_node_duration_seconds_count
redsync_node_duration_seconds_sum
redsync_node_failing
redsync_waiting`, strings.Join(slices.Sorted(maps.Keys(found)), "\n"))
	page := read(t, "../../../redsyncotel/README.md")
	for name := range found {
		assert.Contains(t, page, "`"+instrument(name)+"`")
	}
}

// metricsIn returns the metrics in a query.
func metricsIn(query string) []string {
	return regexp.MustCompile(`redsync_\w+`).FindAllString(regexp.MustCompile(`by \([^)]*\)|\{[^}]*\}`).ReplaceAllString(query, ""), -1)
}

// instrument returns a metric without what Prometheus adds for the parts of a histogram.
func instrument(metric string) string {
	return regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")
}

// checkQuery checks that each metric in a query exists, and has the labels that the query uses.
func checkQuery(t *testing.T, found map[string][]string, query string) {
	metrics := metricsIn(query)
	require.NotEmpty(t, metrics, query)
	labels := regexp.MustCompile(`(\w+)(?:=~|!=|=)"`).FindAllStringSubmatch(query, -1)
	for _, by := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			labels = append(labels, []string{"", strings.TrimSpace(label)})
		}
	}
	for _, metric := range metrics {
		require.Contains(t, found, metric, query)
		for _, label := range labels {
			assert.Contains(t, found[metric], label[1], query)
		}
	}
	for _, pair := range []string{"()", "{}", "[]"} {
		assert.Equal(t, strings.Count(query, pair[:1]), strings.Count(query, pair[1:]), query)
	}
}

// keys are those of the schema of Grafana's dashboards that this one uses.
const keys = `allValue annotations calcs colorMode datasource defaults description displayMode editable expr fieldConfig fields
	from graphMode gridPos h id includeAll label legend legendFormat list min mode multi name options overrides panels placement
	query reduceOptions refId refresh schemaVersion showLegend sort tags targets templating time timezone title to tooltip type
	uid unit values version w x y`

type source struct{ Type, UID string }

// A dashboard is what the test looks at.
type dashboard struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Type, Query string
			Datasource  source
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  source
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			Expr       string
			Datasource source
		}
	}
}

// The dashboard has the form that Grafana reads, and each of its queries finds something.
func TestDashboard(t *testing.T) {
	file := read(t, "../../../redsyncotel/dashboard.json")
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(file), &d))
	for _, key := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(file, -1) {
		assert.Contains(t, strings.Fields(keys), key[1])
	}
	assert.NotEmpty(t, d.UID)
	assert.GreaterOrEqual(t, d.SchemaVersion, 36)
	here, found := source{"prometheus", "${datasource}"}, scraped(t)
	seen, cells := map[string]bool{}, map[[2]int]string{}
	for i, p := range d.Panels {
		assert.Equal(t, i+1, p.ID)
		assert.Contains(t, []string{"timeseries", "stat"}, p.Type, p.Title)
		assert.Equal(t, here, p.Datasource)
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, cells[at], p.Title)
				cells[at] = p.Title
			}
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			assert.Equal(t, here, target.Datasource)
			checkQuery(t, found, target.Expr)
			for _, metric := range metricsIn(target.Expr) {
				seen[instrument(metric)] = true
			}
		}
	}
	assert.Len(t, seen, 10) // it shows each instrument
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			assert.Equal(t, here, v.Datasource)
			assert.Contains(t, found, regexp.MustCompile(`redsync_\w+`).FindString(v.Query))
		}
	}
}

// The alert rules have the form that Prometheus reads, and each of their queries finds something.
func TestAlertRules(t *testing.T) {
	file, err := os.Open("../../../redsyncotel/alerts.yml")
	require.NoError(t, err)
	defer file.Close()
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&rules))
	page := read(t, "../../../redsyncotel/README.md")
	tests := read(t, "../../../redsyncotel/alerts_test.yml") // for promtool
	found := scraped(t)
	for _, r := range rules.Groups[0].Rules {
		checkQuery(t, found, r.Expr)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		assert.Contains(t, page, "`"+r.Alert+"`")
		assert.Regexp(t, "alertname: "+r.Alert+"\n +exp_alerts:", tests) // it fires
		assert.Contains(t, tests, "alertname: "+r.Alert+"}")             // and it does not
		if r.For != "" {
			_, err := time.ParseDuration(r.For)
			require.NoError(t, err, r.Alert)
		}
	}
}
