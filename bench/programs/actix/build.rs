//! Passes the version of actix-web from the lock file to the program.

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let version = lock
        .split("[[package]]")
        .filter(|package| package.contains("name = \"actix-web\"\n"))
        .find_map(|package| package.split("version = \"").nth(1)?.split('"').next());
    println!("cargo::rustc-env=ACTIX_VERSION={}", version.unwrap_or("unknown"));
}
