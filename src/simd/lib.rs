//! `#[simd]` compiles a function once per instruction set of `dsf_ops::simd::Simd`; a call runs the version for the
//! instruction set chosen there.

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{parse_macro_input, FnArg, GenericParam, Ident, ItemFn, TypeParamBound};

/// x86-64-v3, without features that vector code does not use.
const AVX2: &str = "avx2,fma,bmi1,bmi2,f16c,lzcnt,movbe,popcnt";
/// x86-64-v4, supported by every processor with AVX-512 since Skylake-X.
const AVX512: &str = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,f16c,lzcnt,movbe,popcnt";

/// Compiles a free function for every instruction set. If its numbers have a type parameter bound by `Float`,
/// `Float::VECTOR` of that type decides whether versions above the lowest are used.
///
/// Functions called in its loops must be `#[inline(always)]`; otherwise they are not compiled for the instruction set.
#[proc_macro_attribute]
pub fn simd(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    if !arguments.is_empty() {
        let message = "`#[simd]` takes no arguments";
        return syn::Error::new(function.sig.ident.span(), message).to_compile_error().into();
    }
    match versions(function) {
        Ok(tokens) => tokens.into(),
        Err(error) => error.to_compile_error().into(),
    }
}

fn versions(function: ItemFn) -> syn::Result<Tokens> {
    let ItemFn { attrs, vis, sig, block } = function;
    let (name, output) = (&sig.ident, &sig.output);
    let (declared, _, bounds) = sig.generics.split_for_impl();
    let (mut patterns, mut types, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (i, argument) in sig.inputs.iter().enumerate() {
        let FnArg::Typed(argument) = argument else {
            let message = "`#[simd]` is for functions without `self`";
            return Err(syn::Error::new_spanned(argument, message));
        };
        patterns.push(&argument.pat);
        types.push(&argument.ty);
        names.push(format_ident!("argument_{i}"));
    }
    let given: Vec<&Ident> = sig.generics.params.iter().filter_map(named).collect();
    let given = (!given.is_empty()).then(|| quote!(::<#(#given),*>));
    let call = |version: &Ident| quote!(#version #given(#(#names),*));
    let [body, avx2, avx512] = ["body", "avx2", "avx512"].map(|name| format_ident!("{name}"));
    let [call_body, call_avx2, call_avx512] = [&body, &avx2, &avx512].map(call);
    let above = quote! {
        // SAFETY: the current instruction set is always one that the processor supports.
        crate::runtime::simd::Simd::Avx512
            | crate::runtime::simd::Simd::Avx512Bf16
            | crate::runtime::simd::Simd::Amx => return unsafe { #call_avx512 },
        crate::runtime::simd::Simd::Avx2 => return unsafe { #call_avx2 },
    };
    let choose = match sig.generics.params.iter().find_map(float) {
        Some(float) => quote! {
            if const { <#float as crate::runtime::float::Float>::VECTOR } {
                match crate::runtime::simd::Simd::current() {
                    #above
                    crate::runtime::simd::Simd::Baseline => unreachable!("no vectors of this type here"),
                }
            }
        },
        None => quote!(match crate::runtime::simd::Simd::current() {
            #above
            crate::runtime::simd::Simd::Baseline => {}
        }),
    };
    Ok(quote! {
        #(#attrs)*
        #[allow(unsafe_code)]
        // The single version on other architectures stays a separate function, in which `make test-arm` looks for
        // vector instructions.
        #[cfg_attr(not(target_arch = "x86_64"), inline(never))]
        #vis fn #name #declared(#(#names: #types),*) #output #bounds {
            #[inline(always)]
            fn #body #declared(#(#patterns: #types),*) #output #bounds #block

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = #AVX2)]
                fn #avx2 #declared(#(#names: #types),*) #output #bounds {
                    #call_body
                }

                #[target_feature(enable = #AVX512)]
                fn #avx512 #declared(#(#names: #types),*) #output #bounds {
                    #call_body
                }

                #choose
            }
            #call_body
        }
    })
}

/// Returns the name of a type or constant parameter.
fn named(parameter: &GenericParam) -> Option<&Ident> {
    match parameter {
        GenericParam::Type(parameter) => Some(&parameter.ident),
        GenericParam::Const(parameter) => Some(&parameter.ident),
        GenericParam::Lifetime(_) => None,
    }
}

/// Returns the name of a type parameter that is bound by `Float`.
fn float(parameter: &GenericParam) -> Option<&Ident> {
    let GenericParam::Type(parameter) = parameter else {
        return None;
    };
    let bound = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => bound.path.is_ident("Float"),
        _ => false,
    };
    parameter.bounds.iter().any(bound).then_some(&parameter.ident)
}
