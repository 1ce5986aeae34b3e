//! Tensor type ids that this version cannot read, and what is known of them.

use crate::types::TypeId;

/// The known meaning of an id without registry entry.
pub fn type_note(ty: TypeId) -> Option<&'static str> {
    Some(match ty.0 {
        _ if ty.info().is_some() => return None,
        4 => "q4_2, removed from ggml in 2023",
        5 => "q4_3, removed from ggml in 2023",
        31 => "q4_0_4_4, removed from ggml: quantize to q4_0, it is repacked at load",
        32 => "q4_0_4_8, removed from ggml: quantize to q4_0, it is repacked at load",
        33 => "q4_0_8_8, removed from ggml: quantize to q4_0, it is repacked at load",
        36 => "iq4_nl_4_4, removed from ggml; too large or small for i2_s of bitnet.cpp",
        37 => "iq4_nl_4_8, removed from ggml; too large or small for i8_s of bitnet.cpp",
        38 => "iq4_nl_8_8, removed from ggml; too large or small for tl1 of bitnet.cpp",
        134 => "iq1_bn of ik_llama.cpp, of another size than today's",
        135 => "iq2_bn of ik_llama.cpp, of another size than today's",
        43 => "of another size than stq1_0 of Tencent and fv5 of Neutrino",
        44 => "of another size than fv5b of Neutrino",
        142 => "of another size than pq2_0 of PrismML: iq2_tn of ik_llama.cpp, removed in October 2024",
        143 => {
            "of another size than ptq1_0 of PrismML and g8_0 of Pestle: iq1_tn of ik_llama.cpp, removed in October 2024"
        }
        155 => "iq4_kt of ik_llama.cpp, of another size than today's: it was made before June 2025",
        133..=399 => "of ik_llama.cpp, and of another size than its type of this number has today",
        _ => "not known to this version",
    })
}
