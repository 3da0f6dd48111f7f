package endpoints

import (
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// doubt ejects e for what was found, if the percentages allow it.
func (c *Cluster) doubt(e *endpoint, found upstream.Reason) {
	c.mu.Lock()
	o := c.Config().Outlier
	if o == nil || c.endpoints[e.key] != e || !enforced(o, found) || !c.ejectDoubted(o, e, time.Now(), found) {
		c.mu.Unlock()
		return
	}
	c.rebuild(c.Config())
	until, times := e.opinion.until, e.opinion.times
	closed := c.closeEjected(e)
	c.mu.Unlock()
	c.tellDoubt(e, found, until, times)
	closed()
}

// ejectDoubted gives false where e is out already or too many are. It needs mu;
// the caller rebuilds.
func (c *Cluster) ejectDoubted(o *discovery.Outlier, e *endpoint, now time.Time, found upstream.Reason) bool {
	if e.opinion.ejected() || e.ejection.ejected() || !mayEject(o, c.doubted(), len(c.order)) {
		return false
	}
	e.opinion.eject(o, now, found)
	e.totals.ejections.Add(1)
	e.tally.forget()
	c.refresh(e)
	return true
}

// doubted counts those ejected by opinion. It needs mu.
func (c *Cluster) doubted() (n int) {
	for e := range c.out {
		if e.opinion.ejected() {
			n++
		}
	}
	return n
}

func (c *Cluster) tellDoubt(e *endpoint, found upstream.Reason, until time.Time, times int) {
	c.set.cfg.Ejected(found)
	c.set.log.Warn("endpoint ejected", "cluster", c.name, "endpoint", e.key.Address, "reason", found,
		"times", times, "backoff", time.Until(until).Round(time.Millisecond).String())
}

// judged ends the trial of a doubted endpoint.
func (c *Cluster) judged(e *endpoint, good bool) {
	c.mu.Lock()
	o := c.Config().Outlier
	if !e.opinion.onTrial {
		c.mu.Unlock()
		return
	}
	if good || o == nil {
		e.opinion.readmit()
	} else {
		e.opinion.eject(o, time.Now(), e.opinion.reason)
		e.totals.ejections.Add(1)
	}
	e.tally.forget()
	c.refresh(e)
	listed := c.endpoints[e.key] == e
	if listed {
		c.rebuild(c.Config())
	}
	c.mu.Unlock()
	if listed && good {
		c.set.log.Info("endpoint usable again", "cluster", c.name, "endpoint", e.key.Address)
	}
}

// sweep looks at the rates of the interval that is over, if one is.
func (c *Cluster) sweep(now time.Time) {
	if now.UnixNano() < c.nextSweep.Load() {
		return
	}
	type finding struct {
		e     *endpoint
		why   upstream.Reason
		until time.Time
		times int
		close func()
	}
	var found []finding
	c.mu.Lock()
	o := c.Config().Outlier
	if o == nil || now.UnixNano() < c.nextSweep.Load() {
		c.mu.Unlock()
		return
	}
	c.nextSweep.Store(now.Add(o.Interval).UnixNano())
	for e, why := range c.outliers(o) {
		if enforced(o, why) && c.ejectDoubted(o, e, now, why) {
			found = append(found, finding{e, why, e.opinion.until, e.opinion.times, c.closeEjected(e)})
		}
	}
	if len(found) > 0 {
		c.rebuild(c.Config())
	}
	c.mu.Unlock()
	for _, f := range found {
		c.tellDoubt(f.e, f.why, f.until, f.times)
		f.close()
	}
}

// outliers takes every endpoint's rates. It needs mu.
func (c *Cluster) outliers(o *discovery.Outlier) map[*endpoint]upstream.Reason {
	var in []*endpoint
	var answers, dials []rate
	for _, e := range c.order {
		e.opinion.calm()
		a, d := e.tally.take()
		e.rate, e.localRate = shown(a, o.SuccessRateRequests), shown(d, o.SuccessRateRequests)
		if !e.opinion.ejected() && !e.ejection.ejected() {
			in, answers, dials = append(in, e), append(answers, a), append(dials, d)
		}
	}
	found := map[*endpoint]upstream.Reason{}
	for i, why := range outliersOf(o, dials, localSuccessRate, localFailures) {
		found[in[i]] = why
	}
	for i, why := range outliersOf(o, answers, successRate, failurePercentage) {
		found[in[i]] = why
	}
	return found
}

// shown is a rate in percent; nil where there were too few requests for one.
func shown(r rate, requests uint32) *float64 {
	if !enough(r, requests) {
		return nil
	}
	return new(r.percent())
}
