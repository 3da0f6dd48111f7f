package snapshot

// Remembered counts the views and types that the store keeps for its readers.
func (s *Store) Remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.views) + len(s.interest)
}
