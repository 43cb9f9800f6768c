// SPDX-License-Identifier: Apache-2.0
//
// The whole C++ API in one include. C programs include <rondo/c.h>.
#pragma once

#include <rondo/agreement.h>
#include <rondo/batch_norm.h>
#include <rondo/batch_norm_pass.h>
#include <rondo/communicator.h>
#include <rondo/constants.h>
#include <rondo/convert.h>
#include <rondo/error.h>
#include <rondo/gpu.h>
#include <rondo/gradients.h>
#include <rondo/info.h>
#include <rondo/metrics.h>
#include <rondo/options.h>
#include <rondo/parameters.h>
#include <rondo/plan.h>
#include <rondo/sampler.h>
#include <rondo/store.h>
#include <rondo/types.h>
#include <rondo/uneven_inputs.h>
#include <rondo/version.h>
#include <rondo/work.h>
