//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// paints is how often each page is opened in a browser that has nothing in its cache.
const paints = 5

// views is what opening pages for the first time costs.
type views struct {
	sides            []Summary
	largest, slowest string  // the pages
	bytes, paint     float64 // theirs: with headers; p95 in ms
}

// report adds what was measured.
func (v views) report(out *Comparison, kind string) {
	out.Sides = append(out.Sides, v.sides...)
	out.Targets = append(out.Targets,
		fact(fmt.Sprintf("%s: largest first view, %s", kind, v.largest), sizeBytes, v.bytes, maxView),
		fact(fmt.Sprintf("%s: first paint, p95 of the slowest, %s", kind, v.slowest), ms, v.paint, maxPaint))
}

// firstViews opens each page, or the first ones if there are many, in Chromium, each time in a context of its own, so that nothing is in its cache.
func (b *bench) firstViews(ctx context.Context, v *visitor) (out views, err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return out, fmt.Errorf("%w; run `make setup`", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(2*time.Minute))
	all, endAll := chromedp.NewExecAllocator(ctx, options...)
	defer endAll()
	browser, end := chromedp.NewContext(all)
	defer end()
	if err := chromedp.Do(browser); err != nil {
		return out, err
	}
	for _, p := range v.pages {
		if strings.Contains(p.name, "?") {
			continue // as large as without parameters
		}
		if len(out.sides) == 2*b.painted {
			break
		}
		var sizes, times []float64
		for i := range min(b.pairs, paints) {
			size, paint, err := firstView(browser, v, p.addresses[i%len(p.addresses)])
			if err != nil {
				return out, fmt.Errorf("%s: %w", p.name, err)
			}
			sizes, times = append(sizes, size), append(times, paint)
		}
		size := summarise(side{name: "first view of " + p.name, unit: sizeBytes}, [][]float64{sizes})
		paint := summarise(side{name: "first paint of " + p.name, unit: ms}, [][]float64{times})
		out.sides = append(out.sides, size, paint)
		if size.Max > out.bytes {
			out.bytes, out.largest = size.Max, p.name
		}
		if paint.P95 > out.paint {
			out.paint, out.slowest = paint.P95, p.name
		}
	}
	return out, nil
}

// firstView returns the bytes that a page and what it loads take on the wire, and the milliseconds until the browser shows something.
func firstView(browser context.Context, v *visitor, address string) (size, paint float64, err error) {
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	defer end()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	secret := network.SetCookieParams{Name: sessionCookie(v.url), Value: v.session, URL: v.url}
	setCookie := func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, network.SetCookie, secret)
		return chromedp.Void{}, err
	}
	if err := chromedp.Do(ctx, chromedp.Steps(setCookie, chromedp.EmulateViewport(1280, 900), chromedp.Navigate(v.url+address))); err != nil {
		return 0, 0, err
	}
	// transferSize has the headers; the browser asks for the icon itself.
	measured, err := chromedp.Run(ctx, chromedp.Evaluate[struct{ Size, Paint float64 }](`new Promise(done => new PerformanceObserver(list => done(list.getEntriesByName("first-contentful-paint")[0].startTime))
		.observe({type: "paint", buffered: true})).then(paint => ({Paint: paint, Size: [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].reduce((n, e) => n + e.transferSize, 0)}))`,
		chromedp.EvalAwaitPromise))
	return measured.Size, measured.Paint, err
}
