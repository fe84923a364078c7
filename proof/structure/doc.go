// Package structure has only tests. They compare how the code hangs together with bounds: the files that use each other in
// a circle, the functions and files that a plain Lock executes, the fields of Mutex, the Go files in the root, and the
// words of the README.
package structure
