package embedded

import "time"

// This file has the methods of Miniredis with which tests look at the data of a node, or change it. A method of
// Miniredis itself can run between two commands of a script, which no client of a real server can do. The methods here
// wait until the node executes no command.

// Keys returns all keys, sorted.
func (n *Node) Keys() []string {
	n.executing.Lock()
	defer n.executing.Unlock()
	return n.Miniredis.Keys()
}

// Exists reports whether the node has a key.
func (n *Node) Exists(key string) bool {
	n.executing.Lock()
	defer n.executing.Unlock()
	return n.Miniredis.Exists(key)
}

// Get returns the text of a key.
func (n *Node) Get(key string) (string, error) {
	n.executing.Lock()
	defer n.executing.Unlock()
	return n.Miniredis.Get(key)
}

// TTL returns how long a key lasts, 0 if it has no TTL or does not exist.
func (n *Node) TTL(key string) time.Duration {
	n.executing.Lock()
	defer n.executing.Unlock()
	return n.Miniredis.TTL(key)
}

// Set sets a key to a text, without a TTL.
func (n *Node) Set(key, value string) error {
	n.executing.Lock()
	defer n.executing.Unlock()
	return n.Miniredis.Set(key, value)
}

// SetTTL sets the TTL of a key.
func (n *Node) SetTTL(key string, ttl time.Duration) {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.Miniredis.SetTTL(key, ttl)
}

// Del deletes a key, and reports whether it existed.
func (n *Node) Del(key string) bool {
	n.executing.Lock()
	defer n.executing.Unlock()
	return n.Miniredis.Del(key)
}

// FlushAll deletes all keys.
func (n *Node) FlushAll() {
	n.executing.Lock()
	defer n.executing.Unlock()
	n.Miniredis.FlushAll()
}
