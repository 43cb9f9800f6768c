// SPDX-License-Identifier: Apache-2.0
#include "examples/train/curve.h"

#include <iterator>

#include "catch.h"
#include "examples/folder.h"

namespace train {
namespace {

CurveRow row(std::uint64_t step) {
  CurveRow result;
  result.step = step;
  result.epoch = 1;
  result.rate = 0.5;
  result.batch.loss.add(0.25, 4);
  result.batch.right.add(1, 1);
  result.batch.right.add(0, 3);
  return result;
}

std::string curve_content(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST_CASE("a curve is CSV; a run that goes on keeps what was before it") {
  const Folder folder;
  const std::string path = folder.file("curve.csv");
  {
    Curve curve(path, 0);
    for (std::uint64_t step = 1; step <= 12; ++step) curve.add(row(step));
  }
  Curve curve(path, 2);
  CurveRow last = row(3);
  last.test = last.batch;
  last.samples_per_second = 1000;
  curve.add(last);
  curve.flush();
  CHECK(curve_content(path) ==
        "step,epoch,learning_rate,loss,accuracy,test_loss,test_accuracy,samples_per_second\n"
        "1,1,0.5,0.25,0.25,,,\n2,1,0.5,0.25,0.25,,,\n3,1,0.5,0.25,0.25,0.25,0.25,1000.0\n");
}

TEST_CASE("a curve that cannot be written is an error") {
  CHECK_THROWS_WITH(Curve("/nowhere/curve.csv", 0),
                    Catch::Contains("'/nowhere/curve.csv' cannot be written"));
}

}  // namespace
}  // namespace train
