# Nix: `nix run . -- rgen --help`, `nix profile install .`. The programs are built from this folder with the crates of Cargo.lock.
{
  description = "Runs and makes GGUF language models, with the same numbers on every machine";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in {
      packages = each (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "trine";
          version = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package.version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          buildAndTestSubdir = "tools/trine";
          buildType = "dist";
          env.TRINE_COMMIT = self.rev or "unknown";
          # The tests need models and reference programs from elsewhere; `cargo test --workspace` runs them.
          doCheck = false;
          # One program: links for the tools, manual pages and completions are its own work.
          postInstall = ''
            $out/bin/trine --install $out
          '';
          meta = {
            description = (builtins.fromTOML (builtins.readFile ./tools/trine/Cargo.toml)).package.description;
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "trine";
          };
        };
      });
    };
}
