//! Checks of mixer files: forward pass and gradients in f64 and f32, and the matrices of the system (11).

use super::file::{distance, magnitude, GoldenFile, Object};
use super::{gradients, Worst};
use crate::config::ModelConfig;
use crate::error::{Error, Result};
use crate::mixers::{Carried, Entry, Mixer, MixerSpec, MIXERS};
use crate::nn::{Cx, Params};
use candle_core::{DType, Device, Tensor, Var};

/// Finds the registry's entry and variant for a file stem: `STEM_VARIANT`; `STEM` for the variant `paper`, or the first
/// one if there is no such variant; `STEM_pP` for the first variant of a mixer with an option `order`, at order P. What
/// follows a `-` tells files of one variant apart, whose options differ.
pub(super) fn entry(stem: &str) -> Option<(&'static Entry, &'static str)> {
    let stem = stem.split('-').next().unwrap_or(stem);
    if let Some((stem, order)) = stem.rsplit_once("_p") {
        let has_order = |e: &&Entry| e.stem == stem && e.options.iter().any(|o| o.name == "order");
        if order.parse::<usize>().is_ok() {
            let entry = MIXERS.iter().find(has_order)?;
            return Some((entry, entry.variants[0]));
        }
    }
    let variant_of = |entry: &'static Entry| {
        let mut known = entry.variants.iter().copied();
        match stem.strip_prefix(entry.stem)? {
            "" => known.clone().find(|v| *v == "paper").or(known.next()),
            rest => known.find(|v| rest.strip_prefix('_') == Some(v)),
        }
    };
    MIXERS.iter().find_map(|e| Some((e, variant_of(e)?)))
}

/// Config of a model of one bare mixer with the sizes listed in a file. Files of mixers without heads list a number of
/// heads too, which is ignored.
pub(super) fn model_config((entry, variant): (&Entry, &str), sizes: &Object) -> Result<ModelConfig> {
    let heads = sizes.find_size("heads").filter(|_| entry.heads);
    let options = entry.options.iter();
    let sized = options.filter_map(|o| Some((o.name.to_owned(), sizes.value(o.name)?)));
    let expand = sizes.find_size("expand").filter(|_| entry.widens);
    let model = ModelConfig {
        options: sized.collect(),
        d_state: sizes.size("n")?,
        n_heads: heads.unwrap_or(1),
        expand: expand.map(|e| e as f64),
        ..ModelConfig::bare(entry.name, variant, [sizes.size("d")?, sizes.find_size("n_layers").unwrap_or(1)])
    };
    entry.check_sizes(spec(&model, sizes.has("lengths")))?;
    Ok(model)
}

/// Specification of the mixer of `model`, which reads whole documents if it is `bidirectional`.
fn spec(model: &ModelConfig, bidirectional: bool) -> MixerSpec<'_> {
    MixerSpec { bidirectional, ..MixerSpec::from(model) }
}

pub(super) fn check(file: &GoldenFile, stem: &str) -> Result<Option<Worst>> {
    let Some(found) = entry(stem) else { return Ok(None) };
    let mut worst = Worst::default();
    for case in file.cases(".u") {
        let case = GoldenCase::new(file, case, found)?;
        if file.has(&format!("{}.dsf.lambda", case.name)) {
            worst.merge(case.matrices()?);
        }
        if file.has(&format!("{}.w", case.name)) {
            worst.merge(case.gradients(DType::F64)?);
            worst.merge(case.gradients(DType::F32)?);
        }
    }
    Ok(Some(worst))
}

struct GoldenCase<'a> {
    file: &'a GoldenFile,
    name: String,
    entry: &'static Entry,
    model: ModelConfig,
    /// Index of its layer, in a network of several.
    layer: usize,
    /// Lengths of the documents `(B)` u32, of which the mixer reads all tokens; `None` if it reads them in order.
    lengths: Option<Tensor>,
}

impl<'a> GoldenCase<'a> {
    fn new(file: &'a GoldenFile, name: String, found: (&'static Entry, &str)) -> Result<Self> {
        let sizes = file.object(&name)?;
        let lengths = format!("{name}.lengths");
        let lengths = file.has(&lengths).then(|| file.tensor(&lengths)?.to_dtype(DType::U32).map_err(Error::from));
        Ok(Self {
            model: model_config(found, &sizes)?,
            layer: sizes.find_size("layer").unwrap_or(0),
            lengths: lengths.transpose()?,
            entry: found.0,
            file,
            name,
        })
    }

    fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.file.tensor(&format!("{}.{name}", self.name))
    }

    fn params(&self, dtype: DType) -> Params {
        let mut given = self.file.under(&format!("{}.p.", self.name));
        for (name, value) in self.file.under(&format!("{}.const.", self.name)) {
            given.insert(format!("const.{name}"), value);
        }
        Params::given(given, dtype, &Device::Cpu)
    }

    fn build(&self, params: &Params) -> Result<Box<dyn Mixer>> {
        self.build_layer(self.layer, params)
    }

    fn build_layer(&self, layer: usize, params: &Params) -> Result<Box<dyn Mixer>> {
        Ok(self.entry.build(spec(&self.model, self.lengths.is_some()).in_layer(layer), params)?)
    }

    fn what(&self, dtype: DType, name: &str) -> String {
        format!("{} {}.{name}", dtype.as_str(), self.name)
    }

    /// Compares the forward pass and every gradient of sum(y ⊙ w). The layers before have the same parameters and input,
    /// and hand on what the mixer carries.
    fn gradients(&self, dtype: DType) -> Result<Worst> {
        let (forward, backward) = match dtype {
            DType::F64 => (1e-11, 1e-9),
            _ => (1e-5, 1e-4),
        };
        let params = self.params(dtype);
        let mixer = self.build(&params)?;
        let u = Var::from_tensor(&self.tensor("u")?.to_dtype(dtype)?)?;
        let cx = match &self.lengths {
            Some(lengths) => Cx::eval().seeing_all(lengths, u.dim(1)?)?,
            None => Cx::eval(),
        };
        let mut carried = Carried::default();
        for layer in 0..self.layer {
            self.build_layer(layer, &params)?.forward_with(u.as_tensor(), &mut carried, &cx)?;
        }
        let y = mixer.forward_with(u.as_tensor(), &mut carried, &cx)?;
        let wanted = self.tensor("y")?;
        let mut worst = Worst::default();
        let scale = magnitude(wanted)?;
        worst.add(self.what(dtype, "y"), distance(&y, wanted)?, forward * scale);
        let grads = (y * self.tensor("w")?.to_dtype(dtype)?)?.sum_all()?.backward()?;
        let mut vars = params.vars();
        vars.push(("u".to_owned(), u));
        let expected = self.file.under(&format!("{}.g.", self.name));
        let what = |name: &str| self.what(dtype, &format!("g.{name}"));
        worst.merge(gradients(&expected, &vars, &grads, backward, what)?);
        Ok(worst)
    }

    /// Compares the matrices of (11), the recurrence and the kernel (12), in f64.
    fn matrices(&self) -> Result<Worst> {
        const TOLERANCE: f64 = 1e-10;
        let mixer = self.build(&self.params(DType::F64))?;
        let u = self.tensor("u")?.to_dtype(DType::F64)?;
        let system = mixer.ltv(&u)?.ok_or_else(|| {
            let (mixer, variant) = (self.entry.name, &self.model.variant);
            Error::usage(format!("{mixer} {variant} has no system of the form (11)"))
        })?;
        let mut worst = Worst::default();
        let mut compare = |name: &str, got: &Tensor, wanted: &Tensor| -> Result<()> {
            let tolerance = TOLERANCE * magnitude(wanted)?.max(1.0);
            worst.add(self.what(DType::F64, name), distance(got, wanted)?, tolerance);
            Ok(())
        };
        for (name, got) in [("lambda", system.lambda()?), ("b", system.b()?), ("c", system.c()?)] {
            compare(name, &got, self.tensor(&format!("dsf.{name}"))?)?;
        }
        let expected_d = self.tensor("dsf.d");
        match (system.d()?, expected_d) {
            (Some(d), Ok(wanted)) => compare("d", &d, wanted)?,
            (Some(d), Err(_)) => compare("d", &d, &d.zeros_like()?)?,
            (None, Ok(wanted)) => compare("d", &wanted.zeros_like()?, wanted)?,
            (None, Err(_)) => {}
        }
        let (phi, y) = (system.kernel()?, self.tensor("y")?);
        compare("phi", &phi, self.tensor("dsf.phi")?)?;
        compare("recurrence", &system.run(&u)?, y)?;
        compare("kernel", &system.apply_kernel(&phi, &u)?, y)?;
        let forward = mixer.forward(&u.unsqueeze(0)?, &Cx::eval())?;
        compare("forward", &forward.squeeze(0)?, y)?;
        Ok(worst)
    }
}
