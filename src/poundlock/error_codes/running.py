"""Errors of running jobs: Java and Spark, clusters, the driver, processes, REST, deployment and checks."""

from __future__ import annotations

from poundlock.error_codes.subject import ErrorCode, ErrorSubject

SUBJECTS = (
    ErrorSubject(
        100,
        "Starting Spark",
        modules=("spark.launch",),
        codes=(
            ErrorCode(2, "Spark cannot be started as it is set up.", ("a setting that Spark does not take", "a master that is not known", "a session that runs in this process already"), ("do what the second line says", "type: poundlock doctor")),
            ErrorCode(3, "Spark did not start for now, or its Java process ended.", ("too little memory", "a cluster that does not answer"), ("read the JVM's log that is named", "give it more memory, such as -D driver_memory=4g")),
        ),
    ),
    ErrorSubject(
        101,
        "Java",
        modules=("spark.launch.java",),
        codes=(ErrorCode(2, "No Java that Spark can use is there.", ("none is installed", "it is older than 17"), ("type what the second line says, or set JAVA_HOME", "type: poundlock doctor")),),
    ),
    ErrorSubject(
        102,
        "Jars and modules",
        modules=("spark.launch.jars", "spark.launch.dependencies", "spark.launch.class_archive"),
        codes=(ErrorCode(2, "A jar or a module that the job needs cannot be had.", ("this machine has no network", "a proxy", "a checksum that does not fit", "a cache folder that cannot be written"), ("fetch it elsewhere into the cache folder: docs/operations.md", "set cache_dir to a folder of yours: -D cache_dir=…")),),
    ),
    ErrorSubject(
        103,
        "A cluster of Spark",
        modules=("spark.executors", "spark.launch.master", "spark.placement", "spark.planned_tasks"),
        classes=("ApplicationLost",),
        codes=(
            ErrorCode(2, "The machines of the cluster cannot run the job's tasks.", ("another Python, or one without the packages", "paths that only the driver's machine has", "a master that is misspelt"), ("send the environment along with --archives", "use paths that all machines share")),
            ErrorCode(3, "The cluster does not answer, gives no executors, or has ended the application.", ("no worker has room", "a master that was restarted"), ("see the cluster's own page", "ask for less, or wait longer: -D executor_timeout=…")),
        ),
    ),
    ErrorSubject(
        104,
        "Spark",
        modules=("spark",),
        codes=(
            ErrorCode(1, "Spark or Java reports an error that poundlock does not know.", ("what the first line says",), ("read the stack trace in the job's log: poundlock logs JOB",)),
            ErrorCode(2, "Spark cannot run what the job asks of it.", ("an SQL expression that it cannot read", "a column that is not there", "a DataFrame of another session"), ("mend the expression, schema or path that is named",)),
            ErrorCode(3, "Spark or what it talks to failed for now: memory, a disk, a server, a killed process.", ("too little memory", "a full disk", "a server that is away"), ("do what the second line says; the job goes on by itself",)),
            ErrorCode(4, "Spark, a store or the system refuses what the job does, and would refuse it again.", ("credentials or rights", "a bucket that is gone", "too many open files"), ("do what the second line says, then start the job again",)),
        ),
    ),
    ErrorSubject(
        110,
        "The driver",
        modules=("driver",),
        codes=(
            ErrorCode(1, "What was asked of a job was not done before it ended, or too much was asked at once.", ("the job ended meanwhile",), ("start the job again, then ask again",)),
            ErrorCode(2, "A job cannot be run as it is asked.", ("arguments that do not go together",), ("do what the second line says",)),
            ErrorCode(3, "A checkpoint was not taken, or a savepoint is not made yet.", ("a reader that did not read what was planned", "the attempt ended meanwhile"), ("the checkpoint is taken again by itself",)),
            ErrorCode(4, "The Spark session that the job ran in has ended.", ("spark.stop() in a notebook",), ("start the job in another session: it goes on from its checkpoint",)),
        ),
    ),
    ErrorSubject(
        111,
        "Restarts",
        modules=("driver.restart",),
        codes=(ErrorCode(2, "A restart strategy cannot be as it is written.", ("a jitter outside of 0 to 1", "a maximum below the initial delay"), ("correct it: docs/operations.md",)),),
    ),
    ErrorSubject(
        112,
        "The same failure, again and again",
        classes=("SameFailure",),
        codes=(ErrorCode(4, "A job failed several times in the same way and completed no checkpoint in between, so that restarts are of no use.", ("a record that the job cannot take", "something outside that will not come back"), ("mend the cause that the first line names, and start the job again; nothing is lost",)),),
    ),
    ErrorSubject(
        113,
        "A checkpoint that takes too long",
        classes=("CheckpointTimedOut",),
        codes=(ErrorCode(1, "A checkpoint took longer than checkpoint_timeout, and was given up.", ("a system that the sink waits for", "one checkpoint reads very much", "a function that hangs"), ("look where the time goes: poundlock info JOB", "let a checkpoint read less, or raise it: -D checkpoint_timeout=…")),),
    ),
    ErrorSubject(
        114,
        "The autoscaler",
        modules=("driver.autoscaler",),
        codes=(ErrorCode(2, "The settings of the autoscaler do not go together.", ("a minimum above the maximum", "a target outside of 0 to 1"), ("correct the setting that is named",)),),
    ),
    ErrorSubject(
        115,
        "Previews and replays",
        modules=("driver.interactive", "cli.data.replay"),
        codes=(
            ErrorCode(2, "A stream cannot be previewed, or a checkpoint not replayed, as it is asked.", ("a source that cannot be read again", "a checkpoint that is not in the ledger"), ("see which there are: poundlock ledger",)),
            ErrorCode(3, "A savepoint asked of a running handle is not made yet.", ("a checkpoint that takes long",), ("wait longer: savepoint(timeout=…)",)),
        ),
    ),
    ErrorSubject(
        120,
        "Jobs as processes",
        modules=("control", "cli.job_lookup", "cli.job_endpoint", "cli.jobs"),
        codes=(
            ErrorCode(1, "A job that this command asked about, or waited for, has failed, or did not end in time.", ("what the first line says",), ("read its log: poundlock logs JOB", "see how it goes: poundlock info JOB")),
            ErrorCode(2, "There is no such job, or it cannot be asked this as it stands.", ("a misspelt name", "it has ended", "it runs on another machine or as another user"), ("see the jobs there are: poundlock list -a",)),
            ErrorCode(3, "A job's process cannot be asked for now, or ended unexpectedly.", ("it is being started again", "the cluster cannot be reached"), ("try again; see how it goes: poundlock info JOB",)),
            ErrorCode(5, "Another driver has taken over the checkpoint of a job on a cluster.", ("the job was started again elsewhere",), ("let that one run; nothing is lost",)),
        ),
    ),
    ErrorSubject(
        121,
        "A job that does not answer",
        classes=("NoAnswer", "EndedMeanwhile"),
        codes=(ErrorCode(3, "A job was asked something, and gave no answer.", ("it ended or is being started again", "it is busy", "its REST port or its token cannot be used"), ("see how it goes: poundlock info JOB", "read its log: poundlock logs JOB")),),
    ),
    ErrorSubject(
        130,
        "REST",
        modules=("rest",),
        codes=(
            ErrorCode(1, "A job that was asked over REST refuses what was asked, or has ended.", ("a wrong token", "what was asked failed"), ("do what the second line says",)),
            ErrorCode(2, "REST cannot be served, or its token cannot be used.", ("a port that is taken", "a token file that cannot be read or is too short"), ("choose another port, or mend the token file: docs/operations.md",)),
        ),
    ),
    ErrorSubject(
        131,
        "Deployment",
        modules=("deploy", "cli.setup.deploy"),
        codes=(ErrorCode(2, "A unit of systemd or objects of Kubernetes cannot be rendered as asked.", ("a name that cannot be one", "a checkpoint folder that a pod does not keep", "an option that is missing"), ("do what the second line says: docs/operations.md",)),),
    ),
    ErrorSubject(
        132,
        "Audit and fsck",
        modules=("audit",),
        codes=(
            ErrorCode(2, "What is given cannot be audited or checked.", ("a folder that is no checkpoint", "a running driver, under which nothing is removed"), ("give the folder that holds job.json and ledger/", "stop the job first")),
            ErrorCode(4, "The ledger is damaged, or contradicts what it names; nothing was removed.", ("files that were changed or deleted", "a disk that flips bits"), ("restore the file from a backup, then look once more",)),
        ),
    ),
    ErrorSubject(
        133,
        "OpenTelemetry",
        modules=("telemetry",),
        codes=(ErrorCode(2, "A variable of OpenTelemetry asks for what is not there.", ("an exporter or a protocol that is not known",), ("do what the second line says: docs/metrics.md",)),),
    ),
    ErrorSubject(
        140,
        "Servers for trials",
        modules=("testing", "cli.setup.trials"),
        codes=(
            ErrorCode(2, "A server for trials cannot be started here, or a harness is used in a way that cannot work.", ("a port that is taken", "a program or package that is missing"), ("give another port, or stop what uses it", "see docs/testing.md")),
            ErrorCode(3, "A server for trials did not come up.", ("too little memory", "no network to fetch it once"), ("look at its output that is named, and try again",)),
        ),
    ),
    ErrorSubject(
        142,
        "Torture of a job of one's own",
        modules=("cli.torture",),
        codes=(
            ErrorCode(1, "A job in the sandbox failed by itself, took too long, or a service could not be stopped and started.", ("a job that fails without being killed, too", "a command for the service that does not work"), ("read the log that the second line names", "run the job, or the command, by hand")),
            ErrorCode(2, "A job cannot be run in a sandbox, or the options do not fit it.", ("a source or a sink that cannot be redirected", "a failpoint that does not exist", "an input without records"), ("do what the second line says: docs/torture.md",)),
            ErrorCode(3, "A broker does not say what there is to read.", ("a broker that is away, or has very much to do",), ("see that the broker runs, and torture the job again",)),
        ),
    ),
    ErrorSubject(
        141,
        "The demo",
        modules=("demo",),
        codes=(ErrorCode(4, "The demo's job did not run as it should.", ("too few events for this machine", "too little memory"), ("read the log that is named", "run it with more --events")),),
    ),
)  # fmt: skip
