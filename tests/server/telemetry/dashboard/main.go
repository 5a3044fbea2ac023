// Checks dashboards of Grafana by the schemas that Grafana publishes: no unknown field, none missing, no wrong type.
//
//	go run . ../../../../examples/monitoring/grafana-dashboard.json
//
// House rule: it prints what is wrong, a line each, and says nothing else.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins() // the options of each type of panel, and the queries of each data source
	status := 0
	for _, file := range os.Args[1:] {
		for _, err := range check(file) {
			fmt.Printf("%s: %v\n", file, err)
			status = 1
		}
	}
	os.Exit(status)
}

func check(file string) []error {
	data, err := os.ReadFile(file)
	if err != nil {
		return []error{err}
	}
	var read dashboard.Dashboard
	return append(each(read.UnmarshalJSONStrict(data)), each(read.Validate())...)
}

// Some of these errors are lists, and an empty list isn't nil.
func each(err error) (found []error) {
	var list cog.BuildErrors
	if !errors.As(err, &list) {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	for _, one := range list {
		found = append(found, one)
	}
	return found
}
