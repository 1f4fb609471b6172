package kubectl

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	cmddelete "k8s.io/kubectl/pkg/cmd/delete"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/scheme"
	"k8s.io/kubectl/pkg/util"
	"k8s.io/kubectl/pkg/util/templates"
)

const runLong = `
	Create and run a particular image.

	What is made depends on --restart (also spelled --restart-policy): a Deployment for Always, a Job for OnFailure, a pod for Never; a CronJob if
	there is a --schedule; or what --generator names. A command line that says nothing of this, but has a NAME and no flag that upstream's run does not
	have, makes a pod that is restarted always.

	NAME may be left out: it is then taken from the image.`

const runExample = `
	# Start three nginx pods under a deployment called nginx
	kubectl run --image=nginx --replicas=3

	# Start a nginx pod
	kubectl run nginx --image=nginx

	# Start a pod of busybox and keep it in the foreground; don't restart it if it exits
	kubectl run -i -t busybox --image=busybox --restart=Never

	# Run a job
	kubectl run pi --image=perl --restart=OnFailure -- perl -Mbignum=bpi -wle 'print bpi(2000)'

	# Run it every five minutes
	kubectl run pi --schedule="*/5 * * * *" --image=perl -- perl -Mbignum=bpi -wle 'print bpi(2000)'

	# Start a deployment with a service before it
	kubectl run web --image=nginx --replicas=2 --port=80 --expose

	# Print what would be made
	kubectl run nginx --image=nginx --replicas=3 --dry-run=client -o yaml`

// guideFlags are the flags of run that upstream's does not have, or has no longer.
var guideFlags = []string{"replicas", "generator", "schedule", "hostport", "requests", "limits", "serviceaccount", "service-generator", "service-overrides"}

// extendRun makes upstream's run command the guide's as well.
func extendRun(cmd *cobra.Command, f cmdutil.Factory, streams genericiooptions.IOStreams) {
	upstream := cmd.Run
	cmd.Use = "run [NAME] --image=image [--replicas=N] [--restart=Always|OnFailure|Never] [--generator=name] [--env=\"key=value\"] [--port=port] [--expose] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...]"
	cmd.Long, cmd.Example = templates.LongDesc(runLong), templates.Examples(runExample)
	flags := cmd.Flags()
	flags.IntP("replicas", "r", 1, "Number of replicas to create for this container.")
	flags.String("restart-policy", "", "Another name for --restart.")
	flags.String("generator", "", fmt.Sprintf("What to make, instead of inferring it from --restart: %v.", generatorNames()))
	flags.String("schedule", "", "A schedule in the Cron format the job should be run with.")
	flags.String("hostport", "", "The host port mapping for the container port.")
	flags.String("requests", "", "The resource requirement requests for this container. For example, 'cpu=100m,memory=256Mi'.")
	flags.String("limits", "", "The resource requirement limits for this container. For example, 'cpu=200m,memory=512Mi'.")
	flags.String("serviceaccount", "", "Service account to set in the pod spec.")
	flags.String("service-generator", "service/v2", "The name of the generator to use for creating a service. Only used if --expose is true.")
	flags.String("service-overrides", "", "An inline JSON override for the generated service object. Only used if --expose is true.")
	flags.Lookup("restart").Usage = "The restart policy: Always makes a Deployment, OnFailure a Job, Never a pod. If it is left out, a plain 'kubectl run NAME --image=IMAGE' makes a pod that is restarted always."
	cmd.Run = func(cmd *cobra.Command, args []string) {
		r := &run{factory: f, IOStreams: streams}
		cmdutil.CheckErr(r.read(cmd, args))
		if r.plan.upstream {
			upstream(cmd, args)
			return
		}
		cmdutil.CheckErr(r.complete(cmd))
		cmdutil.CheckErr(r.run(cmd))
	}
}

// run is one call of the run command.
type run struct {
	factory cmdutil.Factory
	genericiooptions.IOStreams

	plan             plan
	what             wanted
	expose           bool
	attach, remove   bool
	quiet            bool
	dryRun           cmdutil.DryRunStrategy
	timeout          time.Duration // for the pod to run, when attaching
	overrides        cmdutil.OverrideOptions
	serviceOverrides cmdutil.OverrideOptions

	namespace    string
	enforced     bool // the user named the namespace
	fieldManager string
	recorder     genericclioptions.Recorder
	print        func(runtime.Object) error
	deletes      *cmddelete.DeleteOptions
}

// read parses the command line and refuses what is bound to fail. It sends no request.
func (r *run) read(cmd *cobra.Command, args []string) error {
	text := func(flag string) string { return cmdutil.GetFlagString(cmd, flag) }
	if err := checkImage(text("image")); err != nil {
		return err
	}
	restart, err := restartFlag(cmd.Flags())
	if err != nil {
		return err
	}
	asked := request{image: text("image"), restart: restart, generator: text("generator"), schedule: text("schedule"),
		replicas: cmdutil.GetFlagInt(cmd, "replicas"), stdin: cmdutil.GetFlagBool(cmd, "stdin"),
		guide: slices.ContainsFunc(guideFlags, cmd.Flags().Changed)}
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		asked.name, args = args[0], args[1:]
	}
	if r.plan, err = infer(asked); err != nil || r.plan.upstream {
		return err
	}
	r.what = wanted{image: asked.image, args: args, command: cmdutil.GetFlagBool(cmd, "command"), serviceAccount: text("serviceaccount"),
		privileged: cmdutil.GetFlagBool(cmd, "privileged"), stdin: asked.stdin, tty: cmdutil.GetFlagBool(cmd, "tty"),
		leaveOpen: cmdutil.GetFlagBool(cmd, "leave-stdin-open"), replicas: int32(asked.replicas), schedule: asked.schedule}
	err = r.what.read(texts{labels: text("labels"), requests: text("requests"), limits: text("limits"), port: text("port"), hostPort: text("hostport"),
		pullPolicy: text("image-pull-policy"), env: cmdutil.GetFlagStringArray(cmd, "env"), annotations: cmdutil.GetFlagStringArray(cmd, "annotations")}, r.plan.name)
	if err != nil {
		return err
	}
	r.expose, r.remove, r.quiet = cmdutil.GetFlagBool(cmd, "expose"), cmdutil.GetFlagBool(cmd, "rm"), cmdutil.GetFlagBool(cmd, "quiet")
	if r.attach = r.what.stdin; cmd.Flags().Changed("attach") {
		r.attach = cmdutil.GetFlagBool(cmd, "attach")
	}
	if r.dryRun, err = cmdutil.GetDryRunStrategy(cmd); err != nil {
		return err
	}
	return r.check(text("service-generator"))
}

// restartFlag returns the value of --restart or --restart-policy, "" if neither was given.
func restartFlag(flags *pflag.FlagSet) (string, error) {
	restart, other := flags.Lookup("restart"), flags.Lookup("restart-policy")
	switch {
	case other.Changed && restart.Changed && other.Value.String() != restart.Value.String():
		return "", fmt.Errorf("--restart=%s and --restart-policy=%s mean the same flag: give one of them", restart.Value, other.Value)
	case other.Changed:
		if err := flags.Set("restart", other.Value.String()); err != nil { // upstream's run knows that name only
			return "", err
		}
	case !restart.Changed:
		return "", nil
	}
	return restart.Value.String(), nil
}

// check refuses flags that exclude each other.
func (r *run) check(serviceGenerator string) error {
	switch {
	case r.what.tty && !r.what.stdin:
		return fmt.Errorf("-i/--stdin is required for containers with -t/--tty=true")
	case r.expose && r.what.port == 0:
		return fmt.Errorf("--port must be set when exposing a service")
	case r.expose && serviceGenerator != "service/v1" && serviceGenerator != "service/v2":
		return fmt.Errorf("generator %q not found: there are service/v1, service/v2", serviceGenerator)
	case r.remove && !r.attach:
		return fmt.Errorf("--rm should only be used for attached containers")
	case r.attach && r.plan.kind == cronJob:
		return fmt.Errorf("a %s runs nothing to attach to when it is made", r.plan.kind)
	case r.attach && r.dryRun != cmdutil.DryRunNone:
		return fmt.Errorf("--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)")
	}
	return nil
}

// complete prepares the clients and printers. The flags of upstream's run are bound to that command's own options; like copies them.
func (r *run) complete(cmd *cobra.Command) (err error) {
	r.overrides = cmdutil.OverrideOptions{Overrides: cmdutil.GetFlagString(cmd, "overrides"), OverrideType: cmdutil.OverrideType(cmdutil.GetFlagString(cmd, "override-type"))}
	r.serviceOverrides = cmdutil.OverrideOptions{Overrides: cmdutil.GetFlagString(cmd, "service-overrides"), OverrideType: r.overrides.OverrideType}
	r.fieldManager = cmdutil.GetFlagString(cmd, "field-manager")
	if r.timeout, err = cmdutil.GetPodRunningTimeoutFlag(cmd); err != nil {
		return err
	}
	if r.namespace, r.enforced, err = r.factory.ToRawKubeConfigLoader().Namespace(); err != nil {
		return err
	}
	records := genericclioptions.NewRecordFlags()
	if err := like(cmd, records.AddFlags); err != nil {
		return err
	}
	if err := records.Complete(cmd); err != nil {
		return err
	}
	if r.recorder, err = records.ToRecorder(); err != nil {
		return err
	}
	prints := genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme.Scheme)
	if err := like(cmd, prints.AddFlags); err != nil {
		return err
	}
	printer, err := cmdutil.PrintFlagsWithDryRunStrategy(prints, r.dryRun).ToPrinter()
	if err != nil {
		return err
	}
	r.print = func(obj runtime.Object) error { return printer.PrintObj(obj, r.Out) }
	return r.completeDelete(cmd)
}

func (r *run) completeDelete(cmd *cobra.Command) error {
	if !r.remove {
		return nil
	}
	deletes := cmddelete.NewDeleteFlags("")
	if err := like(cmd, deletes.AddFlags); err != nil {
		return err
	}
	client, err := r.factory.DynamicClient()
	if err != nil {
		return err
	}
	if r.deletes, err = deletes.ToOptions(client, r.IOStreams); err != nil {
		return err
	}
	r.deletes.IgnoreNotFound, r.deletes.WaitForDeletion, r.deletes.Quiet, r.deletes.Output = true, false, r.quiet, ""
	return nil
}

// like sets options to the values that flags of the same names have in cmd.
func like(cmd *cobra.Command, add func(*cobra.Command)) (err error) {
	copied := &cobra.Command{}
	add(copied)
	copied.Flags().VisitAll(func(flag *pflag.Flag) {
		if given := cmd.Flags().Lookup(flag.Name); given != nil && given.Changed && err == nil {
			err = flag.Value.Set(given.Value.String())
			flag.Changed = true
		}
	})
	return err
}

// made is an object that was created.
type made struct {
	object  runtime.Object
	mapping *meta.RESTMapping
}

func (r *run) run(cmd *cobra.Command) error {
	obj := r.what.generate(r.plan)
	main, err := r.create(cmd, obj, &r.overrides)
	if err != nil {
		return err
	}
	all := []made{main}
	var errs []error
	if r.expose {
		service, err := r.create(cmd, r.what.service(r.plan.name), &r.serviceOverrides)
		if err != nil {
			errs = append(errs, err)
		} else {
			all = []made{service, main}
		}
	}
	if r.attach {
		if r.remove {
			defer r.removeAll(all)
		}
		return r.attachTo(cmd, main.object)
	}
	for _, m := range all {
		if err := r.print(m.object); err != nil {
			errs = append(errs, err)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// create creates an object, or prints it with --dry-run.
func (r *run) create(cmd *cobra.Command, obj runtime.Object, overrides *cmdutil.OverrideOptions) (made, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return made{}, err
	}
	if obj, err = overrides.NewOverrider(obj.DeepCopyObject()).Apply(obj); err != nil {
		return made{}, err
	}
	if err := r.recorder.Record(obj); err != nil {
		return made{}, fmt.Errorf("failed to record the command in an annotation: %w", err)
	}
	if r.dryRun == cmdutil.DryRunClient {
		if m, err := meta.Accessor(obj); err == nil && r.enforced {
			m.SetNamespace(r.namespace)
		}
		return made{object: obj}, nil
	}
	mapper, err := r.factory.ToRESTMapper()
	if err != nil {
		return made{}, err
	}
	mapping, err := mapper.RESTMapping(kinds[0].GroupKind(), kinds[0].Version)
	if err != nil {
		return made{}, err
	}
	if err := util.CreateOrUpdateAnnotation(cmdutil.GetFlagBool(cmd, cmdutil.ApplyAnnotationsFlag), obj, scheme.DefaultJSONEncoder()); err != nil {
		return made{}, err
	}
	client, err := r.factory.ClientForMapping(mapping)
	if err != nil {
		return made{}, err
	}
	obj, err = resource.NewHelper(client, mapping).DryRun(r.dryRun == cmdutil.DryRunServer).WithFieldManager(r.fieldManager).Create(r.namespace, false, obj)
	return made{obj, mapping}, err
}

// removeAll deletes the created objects, for --rm.
func (r *run) removeAll(all []made) {
	for _, m := range all {
		object, err := meta.Accessor(m.object)
		if err == nil {
			found := r.factory.NewBuilder().WithScheme(scheme.Scheme, scheme.Scheme.PrioritizedVersionsAllGroups()...).ContinueOnError().
				NamespaceParam(object.GetNamespace()).DefaultNamespace().
				ResourceNames(m.mapping.Resource.Resource+"."+m.mapping.Resource.Group, object.GetName()).Flatten().Do()
			err = r.deletes.DeleteResult(found)
		}
		if err != nil {
			fmt.Fprintf(r.ErrOut, "error: %v\n", err)
		}
	}
}
