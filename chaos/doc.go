// Command chaos puts the library under faults on real servers and checks what its
// clients believed; its tests do so against and together with other libraries.
package main

func main() {}
