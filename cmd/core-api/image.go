package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"secbox/fault"
	"secbox/images/builder"
	"secbox/images/catalog"
	"secbox/images/recipe"
	"secbox/server"
	"secbox/settings"
	"secbox/store"
)

func (c *command) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Build, list and remove own images, which execs may use without a restart",
		Example: "  core-api image build data --from images/sandbox-data.yaml",
	}
	cmd.AddCommand(c.imageBuild(), c.imageList(), c.imageRemove(), c.imageRebuild(), c.imageExport(), c.imageImport(), c.imagePull())
	return cmd
}

// withBuilder calls f with a builder that prints its steps.
func (c *command) withBuilder(ctx context.Context, verbose bool, f func(*builder.Builder) error) error {
	return c.withDatabase(ctx, func(s settings.Settings, db store.Database) error {
		deps, err := server.NewDeps(s, c.environ)
		if err != nil {
			return err
		}
		var output io.Writer
		if verbose {
			output = c.stderr
		}
		b, err := deps.ImageBuilder(ctx, db.OwnImages(), func(format string, args ...any) {
			fmt.Fprintf(c.stderr, format+"\n", args...)
		}, output)
		if err == nil {
			err = f(b)
		}
		if deps.Workspace != nil {
			err = errors.Join(err, deps.Workspace.Close())
		}
		return err
	})
}

// allowed reports an image that execs may use now.
func (c *command) allowed(image catalog.Image, err error) error {
	if err == nil {
		fmt.Fprintf(c.stdout, "The image %s is allowed: %s, %d packages, %s. Execs use it with \"image\": \"%s\".\n", image.Name, image.Ref,
			image.Packages, megabytes(image.SizeBytes), image.Name)
	}
	return err
}

func megabytes(bytes int64) string { return fmt.Sprintf("%d MB", bytes/1e6) }

// networks are the networks that a build may have.
var networks = []string{"host", "default", "none"}

// buildFlags adds the flags of what runs docker build.
func buildFlags(cmd *cobra.Command, network *string, verbose *bool) {
	cmd.Flags().StringVar(network, "network", networks[0], "network of the build: "+strings.Join(networks, ", "))
	cmd.Flags().BoolVar(verbose, "verbose", false, "print docker's output")
}

func checkNetwork(network string) error {
	if !slices.Contains(networks, network) {
		return fault.BadField("network", "must be one of %s", strings.Join(networks, ", "))
	}
	return nil
}

func (c *command) imageBuild() *cobra.Command {
	var from, network string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "build NAME --from FILE",
		Short: "Build an image of a file, check it, and allow it under a name",
		Long: "Builds an image with the docker CLI, whose mirrors, proxies and credentials apply, runs the doctor's probes in it, records what is\n" +
			"installed, and allows execs to use it. An image that has the name is replaced. If a step fails, nothing is left.",
		Example: `  core-api image build data --from images/sandbox-data.yaml
  core-api image build tools --from tools.yaml --verbose`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNetwork(network); err != nil {
				return err
			}
			text, dir, err := readRecipe(from)
			if err != nil {
				return err
			}
			return c.withBuilder(cmd.Context(), verbose, func(b *builder.Builder) error {
				image, err := b.Build(cmd.Context(), args[0], builder.Source{Text: text, Dir: dir, Network: network})
				if e := new(fault.Error); errors.As(err, &e) && (e.Code == fault.InvalidRequest || e.Code == fault.BuildFailed) {
					e.Message = from + ": " + e.Message
				}
				return c.allowed(image, err)
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the file of the image (YAML, required)")
	buildFlags(cmd, &network, &verbose)
	return cmd
}

// readRecipe reads the file of an image, and returns its directory.
func readRecipe(path string) (text, dir string, err error) {
	if path == "" {
		return "", "", fault.BadField("from", "is missing; name the file of the image, such as images/sandbox-data.yaml")
	}
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(f, recipe.MaxBytes+1)); err == nil {
			text = string(data)
			dir, err = filepath.Abs(filepath.Dir(path))
		}
	}
	if err != nil {
		return "", "", fault.New(fault.InvalidRequest, "cannot read %s: %s", path, fault.Reason(err))
	}
	return text, dir, nil
}

// imageRow is an image as image list --json prints it.
type imageRow struct {
	Name      string         `json:"name"`
	Ref       string         `json:"ref"`
	ImageID   string         `json:"image_id"`
	Source    catalog.Source `json:"source"`
	Base      string         `json:"base"`
	Packages  int64          `json:"packages"`
	SizeBytes int64          `json:"size_bytes"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
}

func (c *command) imageList() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the own images",
		Example: `  core-api image list
  core-api image list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.withDatabase(cmd.Context(), func(_ settings.Settings, db store.Database) error {
				images, err := db.OwnImages().List(cmd.Context())
				if err != nil {
					return err
				}
				rows := make([]imageRow, len(images))
				for n, i := range images {
					rows[n] = imageRow{i.Name, i.Ref, i.ImageID, i.Source, i.Base, i.Packages, i.SizeBytes, i.CreatedAt, i.UpdatedAt}
				}
				return c.printReport(asJSON, rows, func() error {
					table := tabwriter.NewWriter(c.stdout, 0, 4, 2, ' ', 0)
					fmt.Fprintln(table, "NAME\tIMAGE\tSOURCE\tBASE\tPACKAGES\tSIZE\tUPDATED")
					for _, i := range rows {
						fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", printable(i.Name), printable(i.Ref), printable(string(i.Source)),
							printable(i.Base), i.Packages, megabytes(i.SizeBytes), i.UpdatedAt.Format(time.RFC3339))
					}
					return table.Flush()
				}, false)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the images as JSON")
	return cmd
}

func (c *command) imageRemove() *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Short:   "Disallow an image at once, and remove it from this node's engine",
		Example: "  core-api image rm data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withBuilder(cmd.Context(), false, func(b *builder.Builder) error {
				inUse, err := b.Remove(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(c.stdout, "The image %s is no longer allowed.\n", args[0])
				if inUse {
					fmt.Fprintln(c.stderr, "Containers still use it. When they are gone, the server or the next image command removes it from the engine.")
				}
				return nil
			})
		},
	}
}

func (c *command) imageRebuild() *cobra.Command {
	var dir, network string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "rebuild NAME",
		Short: "Build an image again of the same file, with the packages of today",
		Example: `  core-api image rebuild data
  core-api image rebuild tools --dir /srv/tools`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNetwork(network); err != nil {
				return err
			}
			if dir != "" {
				var err error
				if dir, err = filepath.Abs(dir); err != nil {
					return fault.Wrap(fault.Internal, err, "the working directory is not known")
				}
			}
			return c.withBuilder(cmd.Context(), verbose, func(b *builder.Builder) error {
				return c.allowed(b.Rebuild(cmd.Context(), args[0], dir, network))
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory that the paths in the file are relative to (default: where the file was)")
	buildFlags(cmd, &network, &verbose)
	return cmd
}

func (c *command) imageExport() *cobra.Command {
	return &cobra.Command{
		Use:     "export NAME FILE",
		Short:   "Write an image to a new file, for image import on another node or installation",
		Example: "  core-api image export data data.tar",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withBuilder(cmd.Context(), false, func(b *builder.Builder) error {
				err := b.Export(cmd.Context(), args[0], args[1])
				if err == nil {
					fmt.Fprintf(c.stdout, "The image %s is in %s.\n", args[0], args[1])
				}
				return err
			})
		},
	}
}

func (c *command) imageImport() *cobra.Command {
	return &cobra.Command{
		Use:     "import FILE",
		Short:   "Load an image of image export, check it, and allow it under its name",
		Example: "  core-api image import data.tar",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withBuilder(cmd.Context(), false, func(b *builder.Builder) error {
				return c.allowed(b.Import(cmd.Context(), args[0]))
			})
		},
	}
}

func (c *command) imagePull() *cobra.Command {
	var name string
	var verbose bool
	cmd := &cobra.Command{
		Use:     "pull REGISTRY/IMAGE@sha256:… --as NAME",
		Short:   "Pull an image by its digest, with docker's credentials, check it, and allow it under a name",
		Example: "  core-api image pull registry.example.com/jobs@sha256:0f1d… --as jobs",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withBuilder(cmd.Context(), verbose, func(b *builder.Builder) error {
				return c.allowed(b.Pull(cmd.Context(), args[0], name))
			})
		},
	}
	cmd.Flags().StringVar(&name, "as", "", "the name under which execs use it (required)")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "print docker's output")
	return cmd
}
