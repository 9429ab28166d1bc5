//! Build script: compiles the kernels if the feature `cuda` is enabled.

#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "cuda")]
mod limits;
#[cfg(feature = "cuda")]
mod report;
#[cfg(feature = "cuda")]
#[path = "../sizes.rs"]
mod sizes;

fn main() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=sizes.rs");
    #[cfg(feature = "cuda")]
    {
        let project = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        println!("cargo::rerun-if-changed={project}/cuda");
        let built = kernels::build(std::path::Path::new(project));
        for error in built.err().unwrap_or_default() {
            println!("cargo::error={error}");
        }
    }
}
