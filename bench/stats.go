package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// percentile returns the lowest value in sorted that at least the share p of the values does not exceed.
func percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	at := int(math.Ceil(p*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// micros converts a duration to µs, as figures need it.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// addTimes sets name_p50, name_p99 and name_max. It sorts times.
func (f figures) addTimes(name string, times []time.Duration) {
	slices.Sort(times)
	f[name+"_p50"] = micros(percentile(times, 0.50))
	f[name+"_p99"] = micros(percentile(times, 0.99))
	f[name+"_max"] = micros(percentile(times, 1))
}

// median returns the median of a figure over the rounds: with an even number of values, the mean
// of the middle two. It returns false if no round has the figure.
func (r *result) median(key string) (float64, bool) {
	return median(r.values(key))
}

// median returns the median of values, which it sorts.
func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2, true
}

// most returns the greatest value of a figure over the rounds, or 0.
func (r *result) most(key string) float64 {
	var most float64
	for _, v := range r.values(key) {
		most = max(most, v)
	}
	return most
}

func (r *result) values(key string) []float64 {
	var values []float64
	for _, s := range r.samples {
		if v, ok := s[key]; ok {
			values = append(values, v)
		}
	}
	return values
}
