package rueidispool

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strings"

	"github.com/redis/rueidis"
)

// A verdict says what Options does with a field of rueidis.ClientOption that is not zero.
type verdict int

const (
	carried verdict = iota + 1 // the connection of the pool has it
	ignored                    // it would change nothing on that connection
	refused                    // without it the connection would be another than the user asked for
)

// A field is what is known of one field: what Options does with it, and why, unless it is carried over.
type field struct {
	verdict
	why string
}

// Reasons that several fields have in common.
const (
	noCache     = "a pool caches nothing"
	noReplica   = "a pool talks to the primary only"
	noRetry     = "a pool sends no request twice"
	ownStream   = "a pool has one ordered stream, with its own buffers"
	noBlocking  = "a pool sends no command that blocks"
	noCluster   = "a node is one server; for a Redis Cluster, give redis.NewClusterClient to pool.New"
	alwaysAsked = "a pool asks all Sentinels, at once, whenever it connects"
)

// fields has every field of rueidis.ClientOption, and those of its structs that rueidis declares. A field that is not
// here may be of a newer rueidis: Options refuses it, because ignoring an option is not harmless in general.
var fields = map[string]field{
	"TLSConfig":         {verdict: carried},
	"DialFn":            {verdict: carried},
	"DialCtxFn":         {verdict: carried},
	"AuthCredentialsFn": {verdict: carried},
	"Dialer":            {verdict: carried},
	"Username":          {verdict: carried},
	"Password":          {verdict: carried},
	"ClientName":        {verdict: carried},
	"ClientSetInfo":     {verdict: carried},
	"InitAddress":       {verdict: carried},
	"SelectDB":          {verdict: carried},
	"ConnWriteTimeout":  {verdict: carried},
	"ConnLifetime":      {verdict: carried},
	"AlwaysRESP2":       {verdict: carried},
	"ClientNoTouch":     {verdict: carried},
	"ClientNoEvict":     {verdict: carried},

	"Sentinel.Dialer":     {verdict: carried},
	"Sentinel.TLSConfig":  {verdict: carried},
	"Sentinel.MasterSet":  {verdict: carried},
	"Sentinel.Username":   {verdict: carried},
	"Sentinel.Password":   {verdict: carried},
	"Sentinel.ClientName": {verdict: carried},

	"NewCacheStoreFn":       {ignored, noCache},
	"OnInvalidations":       {ignored, noCache},
	"ClientTrackingOptions": {ignored, noCache},
	"CacheSizeEachConn":     {ignored, noCache},
	"DisableCache":          {ignored, noCache},

	"SendToReplicas":            {ignored, noReplica},
	"ReplicaSelector":           {ignored, noReplica},
	"ReadNodeSelector":          {ignored, noReplica},
	"EnableReplicaAZInfo":       {ignored, noReplica},
	"AZFromInfo":                {ignored, noReplica},
	"Standalone.ReplicaAddress": {ignored, noReplica},

	"RetryDelay":   {ignored, noRetry},
	"DisableRetry": {ignored, noRetry},

	"RingScaleEachConn":     {ignored, ownStream},
	"ReadBufferEachConn":    {ignored, ownStream},
	"WriteBufferEachConn":   {ignored, ownStream},
	"PipelineMultiplex":     {ignored, ownStream},
	"MaxFlushDelay":         {ignored, ownStream},
	"DisableTCPNoDelay":     {ignored, ownStream},
	"DisableAutoPipelining": {ignored, ownStream},
	"AlwaysPipelining":      {ignored, ownStream},

	"BlockingPoolCleanup": {ignored, noBlocking},
	"BlockingPoolMinSize": {ignored, noBlocking},
	"BlockingPoolSize":    {ignored, noBlocking},
	"BlockingPipeline":    {ignored, noBlocking},

	"ForceSingleClient":                {ignored, "it is what a pool does anyway"},
	"ShuffleInit":                      {ignored, alwaysAsked},
	"Sentinel.TopologyRefreshInterval": {ignored, alwaysAsked},

	"ReplicaOnly":               {refused, "a lock is set on the primary"},
	"Standalone.EnableRedirect": {refused, "a pool does not follow REDIRECT"},

	"ClusterOption.ShardsRefreshInterval":    {refused, noCluster},
	"ClusterOption.MaxMovedRedirections":     {refused, noCluster},
	"ClusterOption.PreferInitAddressRefresh": {refused, noCluster},
	"ClusterOption.PreferClusterShards":      {refused, noCluster},
}

// acceptable returns an error that names each field of option that cannot be carried over, with its type, not its value,
// which may be a secret.
func acceptable(option any) error {
	var texts []string
	for name, value := range leaves("", reflect.ValueOf(option)) {
		f, known := fields[name]
		switch {
		case value.IsZero():
		case !known:
			texts = append(texts, fmt.Sprintf("%s (%v) is not known: is this rueidis newer than rueidispool?", name, value.Type()))
		case f.verdict == refused:
			texts = append(texts, fmt.Sprintf("%s (%v) cannot be carried over: %s", name, value.Type(), f.why))
		}
	}
	if texts == nil {
		return nil
	}
	return errors.New("rueidispool: " + strings.Join(texts, "; "))
}

// optionsPackage is the package that declares rueidis.ClientOption.
var optionsPackage = reflect.TypeFor[rueidis.ClientOption]().PkgPath()

// leaves returns the fields of a struct, with those of the structs of rueidis in it in place of the structs.
func leaves(prefix string, v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		for i := range v.NumField() {
			f, value := v.Type().Field(i), v.Field(i)
			if f.Type.Kind() != reflect.Struct || f.Type.PkgPath() != optionsPackage {
				if !yield(prefix+f.Name, value) {
					return
				}
				continue
			}
			for name, inner := range leaves(prefix+f.Name+".", value) {
				if !yield(name, inner) {
					return
				}
			}
		}
	}
}
