package model

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestFlaws(t *testing.T) {
	only := os.Getenv("FLAW")
	if only == "" {
		t.Skip()
	}
	ty := reflect.TypeOf(semaphoreFlaws{})
	for i := range ty.NumField() {
		if only != "all" && !strings.Contains(","+only+",", ","+ty.Field(i).Name+",") {
			continue
		}
		for _, b := range semaphoreAll() {
			if s := os.Getenv("BOUNDS"); s != "" && !strings.Contains(b.name, s) {
				continue
			}
			var f semaphoreFlaws
			setFlaw(&f, i)
			start := time.Now()
			r := semaphore{b, f}.explore(1_500_000)
			fmt.Printf("%-12s %-70s %9d states %3d steps %5.1fs %v %s\n", ty.Field(i).Name, b.name, r.States, r.Length(), time.Since(start).Seconds(), r.Complete, r.Violation)
			if os.Getenv("TRACE") != "" {
				fmt.Println(r)
			}
		}
	}
}

func setFlaw(f *semaphoreFlaws, i int) {
	v := reflect.ValueOf(f).Elem().Field(i)
	*(*bool)(v.Addr().UnsafePointer()) = true
}
