package main

func drawCharts(dir string, results []*result) error { return nil }
