//! The scenarios and the little project that come with the program.

/// Scenarios by name.
pub(super) const BUILT_IN: &[(&str, &str)] = &[
    ("demo-solve", include_str!("demo-solve.json")),
    ("echo", include_str!("echo.json")),
    ("noop", include_str!("noop.json")),
];

/// Text of a built-in scenario.
pub(super) fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// Names of the built-in scenarios.
pub(super) fn names() -> String {
    BUILT_IN.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")
}

const TOTAL: &str = "#!/bin/sh
# Prints the sum of the numbers given as arguments.
sum=0
for n in \"$@\"; do
    sum=$n
done
echo \"$sum\"
";

const TEST: &str = "#!/bin/sh
# Checks total.sh. Exit status 0 means that every case is right.
cd \"$(dirname \"$0\")\" || exit 2
failed=0
check() {
    want=$1
    shift
    got=$(sh ./total.sh \"$@\")
    if [ \"$got\" = \"$want\" ]; then
        echo \"ok: total.sh $* is $got\"
    else
        echo \"not ok: total.sh $* gave '$got', expected '$want'\"
        failed=1
    fi
}
check 6 1 2 3
check 10 10
check 0
check 3 5 -2
exit $failed
";

/// Files of the project that `demo-solve` works on: path and contents. The sum is wrong, and `sh test.sh`
/// shows it; no file has to be executable.
pub fn demo_files() -> Vec<(&'static str, &'static str)> {
    vec![("total.sh", TOTAL), ("test.sh", TEST)]
}
