// Package chaos tests the library on real servers, against and together with
// other libraries, and under faults.
package chaos
