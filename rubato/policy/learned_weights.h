// The weights of the policy learned, in the order of kFeatures. They were found by
//   rubato contention --table DATA/deepshare/shared.csv --without 8:8 --pairs pairs.csv
//   rubato learn --contention pairs.csv --seed 1 --generations 30 --population 36 --elite 8
//     --scenes 18 --models MobileNetV3,GraphSage,FSDP,Transformer-XL,DLRM,MoE --out weights.json
#pragma once

#include "rubato/policy/learned.h"

namespace rubato::policy {

inline constexpr Weights kShippedWeights = {
    -0.9160360295197543, -0.003991036713010387, -0.061131581391284905, 0.006871260997000472,
    0.0295992997386881,  0.5691597778481564,    -0.12728639065041136,  0.4951772467118869,
    -0.2740239973785276, -0.24187067752318567,  -0.19838402840169653,  -0.45912230847497243,
    -0.5052480063041568, -0.2835730723236508,   0.011550438006365571,  0.03285479285854478,
    -0.5900859596600342, -0.2994706449442211,
};

}  // namespace rubato::policy
