use super::*;

#[test]
fn every_architecture_has_a_name_of_its_own_and_the_tensors_of_a_model() {
    for (i, arch) in ARCHITECTURES.iter().enumerate() {
        let found = Arch::find(arch.name).expect("the name is known");
        assert!(std::ptr::eq(found, ARCHITECTURES[i]), "{} twice", arch.name);
        assert!(!arch.models.is_empty(), "{} names its models", arch.name);
        let ends: Vec<&str> = arch.end_tensors().map(|t| t.place()).collect();
        let normed = arch.residual == rules::Residual::NormedSums;
        for name in ["token_embd.weight", "output_norm.weight"] {
            let needless = normed && name == "output_norm.weight";
            assert!(ends.contains(&name) != needless, "{}: {name}", arch.name);
        }
        for experts in [false, true] {
            // Layers of two kinds may have tensors of one name in different places, and a place may have two names.
            let tensors = arch.block_tensors(experts);
            let listed: Vec<_> = tensors.map(|t| (t.gguf, t.place())).collect();
            let mut sorted = listed.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), listed.len(), "{} lists one twice", arch.name);
            let names: Vec<&str> = arch.block_tensors(experts).map(|t| t.place()).collect();
            let out = ["attn_output.weight", "ssm_out.weight"];
            assert!(names.is_empty() || out.iter().any(|out| names.contains(out)));
        }
        assert!(!(arch.block.is_empty() && arch.expert_block.is_empty()));
    }
}

#[test]
fn what_is_missing_is_not_there() {
    let mut names: Vec<&str> = MISSING.iter().map(|m| m.name).collect();
    names.extend(ARCHITECTURES.iter().map(|a| a.name));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(Missing::find("eagle3").is_some() && Missing::find("llama").is_none());
}

#[test]
fn tensors_are_found_by_their_place() {
    let dbrx = Arch::find("dbrx").expect("an architecture");
    let norm = dbrx.tensor(true, true, "ffn_norm.weight");
    assert_eq!(norm.expect("a norm").gguf, "attn_output_norm.weight");
    assert!(dbrx.tensor(true, true, "attn_output_norm.weight").is_none());
}

#[test]
fn checkpoints_are_told_apart_by_class_key_and_activation() {
    let all = || ARCHITECTURES.iter().flat_map(|a| a.checkpoints.iter().map(|c| (a.name, *c)));
    for (i, (name, checkpoint)) in all().enumerate() {
        assert!(!checkpoint.classes.is_empty() && !checkpoint.activations.is_empty());
        for (_, (other, c)) in all().enumerate().filter(|(n, _)| *n != i) {
            let class = c.classes.iter().any(|x| checkpoint.classes.contains(x));
            let same = c.activations.iter().any(|x| checkpoint.activations.contains(x));
            let told = c.told_by == checkpoint.told_by;
            assert!(!(class && same && told), "{name} and {other} read the same checkpoints");
        }
    }
}

/// Else a tensor that a model has to have would never be missed.
#[test]
fn checkpoints_have_names_for_all_tensors() {
    let all = ARCHITECTURES.iter().flat_map(|a| a.checkpoints.iter().map(move |c| (a, c)));
    for (arch, checkpoint) in all {
        let names = || checkpoint.names.iter().chain(checkpoint.more_names).chain(names::KNOWN);
        let own = |gguf: &&str| names().any(|(_, to)| to.contains(gguf));
        let experts = checkpoint.names.iter().any(|(_, to)| to.contains(&"ffn_gate_inp.weight"));
        let fused = checkpoint.fused.is_some();
        assert!(!fused || own(&"attn_qkv.weight"), "{}", arch.name);
        for t in arch.end_tensors().chain(arch.block_tensors(experts)) {
            let apart = fused && parts::QKV.iter().any(|q| q.gguf == t.gguf);
            let gainless = t.role == Role::PlainNorm;
            // Computed from the configuration.
            let computed = t.gguf == "rope_freqs.weight";
            let beside = checkpoint.beside.iter().any(|other| other.gguf == t.gguf)
                || checkpoint.packed.iter().any(|(_, to)| to.contains(&t.gguf));
            let named = !t.hf.is_empty() || own(&t.gguf) || beside || apart || gainless || computed || !t.required;
            assert!(named, "{}: {}", arch.name, t.gguf);
        }
        for (name, to) in checkpoint.names {
            for gguf in *to {
                let own = arch.tensor(true, experts, gguf).or(arch.tensor(false, experts, gguf));
                let qkv = fused && gguf.starts_with("attn_qkv.");
                let beside = checkpoint.beside.iter().any(|t| t.gguf == *gguf);
                assert!(own.is_some() || qkv || beside || !experts || to.len() == 1, "{name}");
            }
        }
    }
}

#[test]
fn sizes_give_every_extent_its_number() {
    let sizes = Sizes { embd: 10, heads: 4, kv_heads: u64::MAX, head_dim: 3, rope_dim: 2, ..Sizes::default() };
    assert_eq!(sizes.extent(Extent::Keys), u64::MAX);
    assert_eq!(sizes.extent(Extent::RopePairs), 1);
    let q = &parts::QKV[0];
    assert_eq!(sizes.shape(q), [12, 10]);
    assert_eq!(sizes.gguf_shape(q), [10, 12]);
    let sizes = Sizes { kv_heads: 2, value_dim: 5, ..sizes };
    let shapes = parts::QKV.iter().chain(parts::ATTN_OUT).map(|t| sizes.shape(t));
    assert_eq!(shapes.collect::<Vec<_>>(), [[12, 10], [6, 10], [10, 10], [10, 20]]);
    assert_eq!(sizes.extent(Extent::QueriesKeysValues), 28);
}
