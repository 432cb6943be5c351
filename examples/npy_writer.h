// A tensor of your own program as a .npy file, for `regard check`. Standard library only; paste it where you need it.
//     WriteNpy("context.npy", context.data(), {batch, heads, tokens, v_dim});      // floats in C order
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

inline bool WriteNpy(const std::string& path, const float* data, const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  std::string axes;
  for (std::int64_t n : shape) count *= static_cast<std::size_t>(n), axes += std::to_string(n) + ",";
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + axes + "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');  // so that the data starts at a multiple of 64
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size() % 256) << static_cast<char>(header.size() / 256) << header;
  file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(count * sizeof(float)));
  return file.flush().good();
}
