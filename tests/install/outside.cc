// SPDX-License-Identifier: Apache-2.0
//
// An outside program, built against an installed Rondo. Without arguments it is the only rank. With
// "join" it takes its rank from the variables of the launcher.
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include <rondo/communicator.h>

int main(int argc, char** argv) try {
  rondo::Options options;
  if (argc > 1 && std::string_view(argv[1]) == "join") {
    options = rondo::Options::from_environment();
  } else {
    options.rank = 0;
    options.size = 1;
  }
  auto communicator = rondo::Communicator::connect(options);
  std::vector<float> values(1000, static_cast<float>(communicator.rank() + 1));
  const rondo::Buffer buffer{values.data(), values.size(), rondo::DType::f32};
  communicator.all_reduce(buffer, buffer, rondo::ReduceOp::sum).wait();
  const auto expected = static_cast<float>(communicator.size() * (communicator.size() + 1)) / 2;
  for (const float value : values)
    if (value != expected)
      return std::fprintf(stderr, "got %g, not %g\n", static_cast<double>(value),
                          static_cast<double>(expected)),
             1;
  // An error that the library throws must be caught by its type here, outside the library.
  try {
    communicator.broadcast(buffer, buffer, -1).wait();
    return std::fprintf(stderr, "root -1 was accepted\n"), 1;
  } catch (const rondo::Error& error) {
    if (error.code() != rondo::Errc::invalid_argument) throw;
  }
  std::printf("rank %d of %d: sum %g\n", communicator.rank(), communicator.size(),
              static_cast<double>(expected));
  return 0;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
